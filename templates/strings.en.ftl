# Every word of the digest in English. A copy of this file with another tag, such as
# strings.fr.ftl, adds a language; the format is Fluent (projectfluent.org).
# A message that another language lacks is taken from here.

dir = ltr

## Numbers and dates, after CLDR

number-group = ,
number-decimal = .
percent = { $n }%
month-1 = Jan
month-2 = Feb
month-3 = Mar
month-4 = Apr
month-5 = May
month-6 = Jun
month-7 = Jul
month-8 = Aug
month-9 = Sep
month-10 = Oct
month-11 = Nov
month-12 = Dec
weekday-1 = Mon
weekday-2 = Tue
weekday-3 = Wed
weekday-4 = Thu
weekday-5 = Fri
weekday-6 = Sat
weekday-7 = Sun
date = { $day } { $month } { $year }
date-time = { $weekday } { $day } { $month }, { $time }
duration-days = { $n } d
duration-hours = { $n } h
duration-minutes = { $n } min
duration-seconds = { $n } s
period-same-month = { $first-day }–{ $last-day } { $last-month } { $last-year }
period-same-year = { $first-day } { $first-month } – { $last-day } { $last-month } { $last-year }
period-two-years = { $first-day } { $first-month } { $first-year } – { $last-day } { $last-month } { $last-year }

## The digest

subject = { $org }: weekly digest, { $period }
title = Weekly digest
quiet = A quiet week: nothing to report. We will be back when there is.
quiet-short = A quiet week: nothing to report.
omitted = This part could not be put together this week.
untitled = (untitled)
more =
    { $n ->
        [one] and { $n-text } more
       *[other] and { $n-text } more
    }
entries =
    { $n ->
        [one] { $n-text } entry
       *[other] { $n-text } entries
    }
column-what = What
column-value = This week
column-change = Change

## Changes against the week before

change-up = ▲ up { $by }
change-down = ▼ down { $by }
change-same = no change
change-new = new
change-unknown = n/a

## The footer

why = You get this mail because you are an admin of { $org } and have asked for the weekly digest.
unsubscribe = Unsubscribe
settings = Settings
sent-by = Sent by { $product }
logo = { $product } logo
