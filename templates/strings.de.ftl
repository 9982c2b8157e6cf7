# Every word of the digest in German.

dir = ltr

## Numbers and dates, after CLDR

number-group = .
number-decimal = ,
percent = { $n } %
month-1 = Jan.
month-2 = Feb.
month-3 = März
month-4 = Apr.
month-5 = Mai
month-6 = Juni
month-7 = Juli
month-8 = Aug.
month-9 = Sept.
month-10 = Okt.
month-11 = Nov.
month-12 = Dez.
weekday-1 = Mo
weekday-2 = Di
weekday-3 = Mi
weekday-4 = Do
weekday-5 = Fr
weekday-6 = Sa
weekday-7 = So
date = { $day }. { $month } { $year }
date-time = { $weekday }, { $day }. { $month }, { $time }
duration-days = { $n } Tg.
duration-hours = { $n } Std.
duration-minutes = { $n } Min.
duration-seconds = { $n } Sek.
period-same-month = { $first-day }.–{ $last-day }. { $last-month } { $last-year }
period-same-year = { $first-day }. { $first-month } – { $last-day }. { $last-month } { $last-year }
period-two-years = { $first-day }. { $first-month } { $first-year } – { $last-day }. { $last-month } { $last-year }

## The digest

subject = { $org }: Wochenüberblick, { $period }
title = Wochenüberblick
quiet = Eine ruhige Woche: nichts zu berichten. Wir melden uns, wenn es wieder etwas gibt.
quiet-short = Eine ruhige Woche: nichts zu berichten.
omitted = Dieser Teil konnte diese Woche nicht erstellt werden.
untitled = (ohne Titel)
more =
    { $n ->
        [one] und { $n-text } weiterer Eintrag
       *[other] und { $n-text } weitere
    }
entries =
    { $n ->
        [one] { $n-text } Eintrag
       *[other] { $n-text } Einträge
    }
column-what = Was
column-value = Diese Woche
column-change = Veränderung

## Changes against the week before

change-up = ▲ { $by } mehr
change-down = ▼ { $by } weniger
change-same = unverändert
change-new = neu
change-unknown = k. A.

## The footer

why = Diese E-Mail kommt, weil der Wochenüberblick für die Verwaltung von { $org } bestellt ist.
unsubscribe = Abbestellen
settings = Einstellungen
sent-by = Gesendet von { $product }
logo = Logo von { $product }
