# Run by installed.rs, as root in namespaces of its own: $folder is empty, $package is the file.
set -eu
# A copy of this machine: what is written goes into memory.
mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
mount -t proc proc "$folder/root/proc"
mount --rbind /dev "$folder/root/dev"
# No systemd is at work here.
mount -t tmpfs tmpfs "$folder/root/run"
mount -t tmpfs -o mode=1777 tmpfs "$folder/root/tmp"
cp "$package" "$folder/root/tmp/stepward.deb"
ip link set lo up
exec chroot "$folder/root" /bin/sh -eu <<'CHROOT'
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
cd /tmp
url=http://127.0.0.1:7717
admin=/var/lib/stepward/admin.token
fail() {
  echo "$*" >&2
  exit 1
}
install() {
  dpkg -i stepward.deb </dev/null >dpkg.log 2>&1 || { cat dpkg.log >&2; exit 1; }
}
# In a shell of its own, which becomes the program.
as() {
  user=$1
  shift
  exec env -i PATH="$PATH" setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs "$@"
}
await() {
  tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || fail "in vain: $*: $(cat server.said worker.said)"
    sleep 0.1
  done
}
# As the units say: their own user, and a folder that systemd makes.
start_server() {
  for folder in $(sed -n 's/^StateDirectory=//p' /usr/lib/systemd/system/stepward-server.service); do
    mkdir -p -m 700 /var/lib/$folder
    chown stepward:stepward /var/lib/$folder
  done
  as stepward stepward server --config /etc/stepward/server-config.yaml 2>server.said &
  server=$!
  await stepward doctor server --server $url --token-file "$admin"
}
start_worker() {
  mkdir -p -m 700 /var/lib/stepward-worker
  chown stepward-worker:stepward-worker /var/lib/stepward-worker
  as stepward-worker stepward worker --config /etc/stepward/worker-config.yaml 2>worker.said &
  worker=$!
  await sh -c "stepward worker ls --server $url --token-file $admin | grep active"
}

! id stepward 2>/dev/null || fail "there is a user stepward already"
install
stepward --version
for user in stepward stepward-worker; do
  [ "$(getent passwd $user | cut -d: -f7)" = /usr/sbin/nologin ] || fail "$user: $(getent passwd $user)"
done
[ "$(stat -c '%U:%G %a' /etc/stepward/secrets)" = "root:stepward 2750" ] || fail "$(ls -ld /etc/stepward/secrets)"
systemd-analyze verify /usr/lib/systemd/system/stepward-server.service /usr/lib/systemd/system/stepward-worker.service >verify 2>&1 || true
grep -i stepward verify && fail "systemd does not like the units"
[ -L /etc/systemd/system/multi-user.target.wants/stepward-server.service ] || fail "the server is not enabled"
! [ -L /etc/systemd/system/multi-user.target.wants/stepward-worker.service ] || fail "the worker is enabled"
for page in stepward stepward-run stepward-worker-ls stepward-server; do
  [ -s /usr/share/man/man1/$page.1.gz ] || fail "no manual page of $page"
done
[ "$(ls /usr/share/man/man1/stepward*.gz | wc -l)" -ge 30 ] || fail "manual pages are missing"
bash -c '. /usr/share/bash-completion/completions/stepward && complete -p stepward' >/dev/null
[ -s /usr/share/zsh/vendor-completions/_stepward ]
[ -s /usr/share/fish/vendor_completions.d/stepward.fish ]
[ -e /usr/share/doc/stepward/copyright ]
[ -e /usr/share/doc/stepward/examples/server-config.example.yaml ]
[ -e /usr/share/doc/stepward/docs/security.md ]

cp /usr/share/doc/stepward/examples/hello.yaml /etc/stepward/workflows/
grep -q /var/lib/stepward/admin.token dpkg.log || fail "the installation does not say where the token is: $(cat dpkg.log)"
start_server
! stepward job ls --server $url 2>refused.said || fail "it asks nobody for a token"
! (as stepward-worker cat $admin) >/dev/null 2>&1 || fail "the worker's user reads the token"
# The worker is enrolled with the commands that its settings name.
enrol=$(sed -n 's/^#   //p' /etc/stepward/worker-config.yaml)
sh -euc "$enrol" >enrol.said 2>&1 || fail "$enrol: $(cat enrol.said)"
sed -i 's/^#token_file:/token_file:/' /etc/stepward/worker-config.yaml
start_worker
stepward run hello --server $url --token-file $admin >run.said 2>&1 || fail "$(cat run.said server.said worker.said)"
[ "$(stat -c %U /var/lib/stepward/stepward.db)" = stepward ]
! (as stepward-worker cat /var/lib/stepward/stepward.db) >/dev/null 2>&1 || fail "the worker's user reads the database"
kill -TERM $worker $server
wait $worker
wait $server

# Backups are made where the settings propose it, and one is restored by the advice of a server whose database is damaged.
sed -i 's/^#backup:/backup:/' /etc/stepward/server-config.yaml
start_server
await sh -c 'ls /var/lib/stepward-backups/*.tar.gz'
kill -TERM $server
wait $server
dd if=/dev/urandom of=/var/lib/stepward/stepward.db bs=4096 seek=1 count=8 conv=notrunc 2>/dev/null
! (as stepward stepward server --config /etc/stepward/server-config.yaml) 2>server.said || fail "it starts on a damaged database"
advice=$(sed -n 's/.*restore it from a backup: //p' server.said)
sh -euc "$(echo "$advice" | sed "s|FILE|$(ls /var/lib/stepward-backups/*.tar.gz)|")" >restore.said 2>&1 || fail "$advice: $(cat restore.said)"
[ "$(find /var/lib/stepward ! -user stepward)" = "" ] || fail "not its own: $(find /var/lib/stepward ! -user stepward)"
# The token files are not in backups: a new token is made as the server says.
(as stepward stepward token new restored --role admin --data-dir /var/lib/stepward --to /var/lib/stepward/restored.token) ||
  fail "no token after a restore"
admin=/var/lib/stepward/restored.token
start_server
stepward job ls --server $url --token-file $admin | grep -q hello || fail "the job is gone"
kill -TERM $server
wait $server

# An upgrade keeps what somebody wrote, and asks nothing.
echo "# mine" >>/etc/stepward/server-config.yaml
install
grep -q "# mine" /etc/stepward/server-config.yaml || fail "the settings were overwritten"
start_server
stepward job ls --server $url --token-file $admin | grep -q hello || fail "the job is gone"
kill -TERM $server
wait $server

dpkg -r stepward >dpkg.log 2>&1 || fail "$(cat dpkg.log)"
! [ -e /usr/bin/stepward ] || fail "the binary is there after a removal"
[ -s /var/lib/stepward/stepward.db ] || fail "a removal took the database"
grep -q "# mine" /etc/stepward/server-config.yaml || fail "a removal took the settings"
install
grep -q "# mine" /etc/stepward/server-config.yaml
[ -s /var/lib/stepward/stepward.db ]
rm /etc/stepward/workflows/hello.yaml
rm -r /var/lib/stepward-backups/*
dpkg --purge stepward </dev/null >dpkg.log 2>&1 || fail "$(cat dpkg.log)"
for gone in /var/lib/stepward /var/lib/stepward-backups /var/lib/stepward-worker /etc/stepward /usr/share/doc/stepward \
  /usr/lib/systemd/system/stepward-server.service /etc/systemd/system/multi-user.target.wants/stepward-server.service; do
  ! [ -e $gone ] && ! [ -L $gone ] || fail "$gone is there after a purge"
done
! dpkg -s stepward >/dev/null 2>&1 || fail "dpkg knows it after a purge"
echo "nothing is left"
CHROOT
