#!/bin/sh
# A Postfix of its own on a port of loopback, in the foreground: STARTTLS and AUTH are compulsory.
#
#   postfix.sh PROGRAMS FOLDER PORT [LINE OF main.cf]...
#
# PROGRAMS is the folder above Postfix's lib/ and sbin/ (scripts/unpack-postfix prints it). FOLDER holds
# cert.pem and key.pem, and gets everything else. What FOLDER/transport names goes where it says, the rest
# is discarded once accepted. Needs root, as Postfix does: it changes to users without rights by itself.
set -eu
programs=$1 folder=$2 port=$3
shift 3

owner=mail group=uucp # Any two that every Debian has; a user of its own would change the system.
queue=$folder/queue data=$folder/data etc=$folder/etc
mkdir "$queue" "$data" "$etc" "$etc/sasl"
for part in active bounce corrupt defer deferred flush hold incoming private saved trace maildrop public; do
  mkdir "$queue/$part"
  chown "$owner" "$queue/$part"
done
mkdir "$queue/pid"
chgrp "$group" "$queue/maildrop" "$queue/public"
chmod 730 "$queue/maildrop"
chmod 710 "$queue/public"
chown "$owner" "$data"
# Created here, so that who reads it need not be root.
: >"$folder/log"

LD_LIBRARY_PATH=$programs/lib/postfix
export LD_LIBRARY_PATH
for plugins in "$programs"/lib/*/sasl2; do
  if [ "$programs" != /usr ] && [ -d "$plugins" ]; then
    SASL_PATH=$plugins:/usr/${plugins#"$programs/"}
    export SASL_PATH
  fi
done
printf right | "$programs/sbin/saslpasswd2" -c -p -f "$etc/sasldb" -u relay.test digest
chown "$owner" "$etc/sasldb"
cat >"$etc/sasl/smtpd.conf" <<END
pwcheck_method: auxprop
auxprop_plugin: sasldb
sasldb_path: $etc/sasldb
mech_list: PLAIN LOGIN
END

cat >"$etc/main.cf" <<END
compatibility_level = 3.6
queue_directory = $queue
data_directory = $data
daemon_directory = $programs/lib/postfix/sbin
command_directory = $programs/sbin
shlib_directory = $programs/lib/postfix
meta_directory = $etc
mail_owner = $owner
setgid_group = $group
default_privs = nobody
import_environment = LD_LIBRARY_PATH SASL_PATH MAIL_CONFIG MAIL_LOGTAG
maillog_file = $folder/log
maillog_file_prefixes = $folder
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = relay.test
mydestination =
mynetworks =
alias_maps =
smtputf8_enable = yes
smtpd_tls_security_level = encrypt
smtpd_tls_auth_only = yes
smtpd_tls_cert_file = $folder/cert.pem
smtpd_tls_key_file = $folder/key.pem
smtpd_sasl_auth_enable = yes
smtpd_sasl_local_domain = relay.test
# Debian's looks into the folder sasl/ beside this file, others look here.
cyrus_sasl_config_path = $etc/sasl
smtpd_relay_restrictions = permit_sasl_authenticated, reject
transport_maps = regexp:$folder/transport
default_transport = discard
# A limit is for everybody, loopback too, and forgets quickly.
smtpd_client_event_limit_exceptions =
anvil_rate_time_unit = 2s
END
for line in "$@"; do printf '%s\n' "$line" >>"$etc/main.cf"; done

cat >"$etc/master.cf" <<END
127.0.0.1:$port inet n - n - - smtpd
cleanup  unix  n - n - 0 cleanup
qmgr     unix  n - n 300 1 qmgr
rewrite  unix  - - n - - trivial-rewrite
bounce   unix  - - n - 0 bounce
defer    unix  - - n - 0 bounce
trace    unix  - - n - 0 bounce
tlsmgr   unix  - - n 1000? 1 tlsmgr
anvil    unix  - - n - 1 anvil
discard  unix  - - n - - discard
smtp     unix  - - n - - smtp
error    unix  - - n - - error
retry    unix  - - n - - error
proxymap unix  - - n - - proxymap
showq    unix  n - n - - showq
flush    unix  n - n 1000? 0 flush
postlog  unix-dgram n - n - 1 postlogd
END

exec "$programs/lib/postfix/sbin/master" -c "$etc" -d
