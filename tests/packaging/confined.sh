# Run by confined.rs, as root in namespaces of its own: $folder is empty, $binary is ours.
set -eu
# Not below the folder: what is above it may be closed to others.
mount -t tmpfs -o mode=755 tmpfs "$folder"
cp "$binary" "$folder/stepward"
mkdir -m 755 "$folder/workflows" "$folder/server" "$folder/worker"
chown 61001:61001 "$folder/server"
chown 61002:61002 "$folder/worker"
cat >"$folder/workflows/all.yaml" <<'YAML'
tasks:
  look:
    flow:
      around:
        script: |
          test "$(id -u)" = 61002
          touch here
          ! touch /var/lib/there 2>/dev/null
          ! ls "$LOCKED" 2>/dev/null
          (setsid sleep 0.2 &)
          seq 3
        env: { LOCKED: /proc/1/fd }
YAML
ip link set lo up
# ProtectSystem=strict, for every mount that is there.
cut -d' ' -f5 /proc/self/mountinfo | sort -r | while read -r place; do
  mount -o remount,bind,ro "$place" 2>/dev/null || true
done
for own in server worker; do
  mount --bind "$folder/$own" "$folder/$own"
  mount -o remount,bind,rw "$folder/$own"
done
# ProtectProc=invisible.
mount -t proc -o hidepid=invisible proc /proc
# In the background, so that its number is that of the program.
as() {
  user=$1
  shift
  exec env -i PATH="$PATH" setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
}
cd "$folder/server"
chmod 700 . ../worker
# ProcSubset=pid, for the server alone.
as_server() {
  exec unshare --mount sh -euc 'mount -t proc -o hidepid=invisible,subset=pid proc /proc; exec "$@"' sh \
    env -i PATH="$PATH" setpriv --reuid 61001 --regid 61001 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
}
as_server "$folder/stepward" server --listen 127.0.0.1:7717 --data-dir "$folder/server" --workflows-dir "$folder/workflows" 2>said &
server=$!
admin=$folder/server/admin.token
tries=0
until "$folder/stepward" token check --server http://127.0.0.1:7717 --token-file "$admin" >/dev/null 2>&1; do
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { cat "$folder"/*/said >&2; exit 1; }
  sleep 0.1
done
cd "$folder/worker"
"$folder/stepward" token new confined --role enrolment --server http://127.0.0.1:7717 --token-file "$admin" --to enrolment
chown 61002:61002 enrolment
as 61002 "$folder/stepward" worker --server http://127.0.0.1:7717 --token-file enrolment --data-dir "$folder/worker" 2>said &
worker=$!
tries=0
until "$folder/stepward" worker ls --server http://127.0.0.1:7717 --token-file "$admin" 2>/dev/null | grep -q active; do
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { cat "$folder"/*/said >&2; exit 1; }
  sleep 0.1
done
cd /
"$folder/stepward" run look --server http://127.0.0.1:7717 --token-file "$admin" >&2 || { cat "$folder"/*/said >&2; exit 1; }
kill -TERM $worker
wait $worker
kill -TERM $server
wait $server
echo "the job was completed"
