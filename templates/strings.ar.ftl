# Every word of the digest in Arabic. Digits are the European ones, as most software shows them.

dir = rtl

## Numbers and dates, after CLDR

number-group = ,
number-decimal = .
percent = { $n }%
month-1 = يناير
month-2 = فبراير
month-3 = مارس
month-4 = أبريل
month-5 = مايو
month-6 = يونيو
month-7 = يوليو
month-8 = أغسطس
month-9 = سبتمبر
month-10 = أكتوبر
month-11 = نوفمبر
month-12 = ديسمبر
weekday-1 = الاثنين
weekday-2 = الثلاثاء
weekday-3 = الأربعاء
weekday-4 = الخميس
weekday-5 = الجمعة
weekday-6 = السبت
weekday-7 = الأحد
date = { $day } { $month } { $year }
date-time = { $weekday }، { $day } { $month }، { $time }
duration-days = { $n } ي
duration-hours = { $n } س
duration-minutes = { $n } د
duration-seconds = { $n } ث
period-same-month = { $first-day }–{ $last-day } { $last-month } { $last-year }
period-same-year = { $first-day } { $first-month } – { $last-day } { $last-month } { $last-year }
period-two-years = { $first-day } { $first-month } { $first-year } – { $last-day } { $last-month } { $last-year }

## The digest

subject = { $org }: الملخص الأسبوعي، { $period }
title = الملخص الأسبوعي
quiet = أسبوع هادئ: لا جديد فيه. سنعود عندما يكون هناك جديد.
quiet-short = أسبوع هادئ: لا جديد فيه.
omitted = تعذّر إعداد هذا الجزء هذا الأسبوع.
untitled = (بلا عنوان)
more =
    { $n ->
        [zero] ولا شيء غير ذلك
        [one] وعنصر واحد آخر
        [two] وعنصران آخران
        [few] و{ $n-text } عناصر أخرى
        [many] و{ $n-text } عنصرًا آخر
       *[other] و{ $n-text } عنصر آخر
    }
entries =
    { $n ->
        [zero] لا عناصر
        [one] عنصر واحد
        [two] عنصران
        [few] { $n-text } عناصر
        [many] { $n-text } عنصرًا
       *[other] { $n-text } عنصر
    }
column-what = البند
column-value = هذا الأسبوع
column-change = التغيّر

## Changes against the week before

change-up = ▲ أكثر بمقدار { $by }
change-down = ▼ أقل بمقدار { $by }
change-same = بلا تغيير
change-new = جديد
change-unknown = غير متاح

## The footer

why = تصلك هذه الرسالة لأنك من مسؤولي { $org } وقد طلبت الملخص الأسبوعي.
unsubscribe = إلغاء الاشتراك
settings = الإعدادات
sent-by = أرسلها { $product }
logo = شعار { $product }
