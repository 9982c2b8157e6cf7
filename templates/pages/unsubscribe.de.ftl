# The words of the unsubscribe page.

dir = ltr
ask-title = Abbestellen?
off-title = Abbestellt
on-title = Wieder abonniert
is-on =
    { $named ->
        [yes] Sie erhalten die Wochenübersicht von { $org } per E-Mail.
       *[no] Sie erhalten diese Wochenübersicht per E-Mail.
    }
is-off-org =
    { $named ->
        [yes] Sie erhalten die Wochenübersicht von { $org } nicht mehr.
       *[no] Sie erhalten diese Wochenübersicht nicht mehr.
    }
is-off-all = Sie erhalten von hier keine Übersichten mehr.
now-on =
    { $named ->
        [yes] Sie erhalten die Wochenübersicht von { $org } wieder.
       *[no] Sie erhalten diese Wochenübersicht wieder.
    }
stop-org =
    { $named ->
        [yes] Die Wochenübersicht von { $org } abbestellen
       *[no] Diese Wochenübersicht abbestellen
    }
stop-all = Alle Übersichten von hier abbestellen
stop-others = Auch alle anderen Übersichten abbestellen
again =
    { $named ->
        [yes] Die Wochenübersicht von { $org } wieder erhalten
       *[no] Diese Wochenübersicht wieder erhalten
    }
on-their-way = Nachrichten, die schon unterwegs sind, können noch ankommen.
settings = Alle Einstellungen für E-Mails
unknown-title = Dieser Link funktioniert nicht
unknown = Vielleicht ist er abgeschnitten. Bitte nehmen Sie den Link am Ende der neuesten E-Mail.
busy-title = Gerade nicht möglich
unavailable = Ihre Wahl konnte nicht gelesen oder gespeichert werden. Bitte versuchen Sie es in einigen Minuten noch einmal.
too-many = Gerade kommen zu viele Anfragen an. Bitte versuchen Sie es in einigen Minuten noch einmal.
unchanged-title = Es wurde nichts geändert
too-large = Es wurde mehr gesendet, als diese Seite erwartet.
unreadable = Das Formular ist nicht vollständig angekommen. Bitte versuchen Sie es noch einmal.
