# The words of the unsubscribe page.

dir = ltr
ask-title = Unsubscribe?
off-title = You are unsubscribed
on-title = You are subscribed again
is-on =
    { $named ->
        [yes] You get the weekly digest of { $org } by e-mail.
       *[no] You get this weekly digest by e-mail.
    }
is-off-org =
    { $named ->
        [yes] You will not get the weekly digest of { $org } any more.
       *[no] You will not get this weekly digest any more.
    }
is-off-all = You will get no more digests from here.
now-on =
    { $named ->
        [yes] You will get the weekly digest of { $org } again.
       *[no] You will get this weekly digest again.
    }
stop-org =
    { $named ->
        [yes] Stop the weekly digest of { $org }
       *[no] Stop this weekly digest
    }
stop-all = Stop all digests from here
stop-others = Stop all other digests, too
again =
    { $named ->
        [yes] Get the weekly digest of { $org } again
       *[no] Get this weekly digest again
    }
on-their-way = Messages that are on their way already may still arrive.
settings = All settings for e-mails
unknown-title = This link does not work
unknown = It may have been cut off. Please use the link at the end of the latest e-mail.
busy-title = Not possible right now
unavailable = Your choice could not be read or stored. Please try again in a few minutes.
too-many = There are too many requests at the moment. Please try again in a few minutes.
unchanged-title = Nothing was changed
too-large = More was sent than this page expects.
unreadable = The form did not arrive whole. Please try again.
