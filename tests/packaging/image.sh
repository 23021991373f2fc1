# Run by image.rs, as root in namespaces of its own: $folder has `built`, what a first stage would make, and `context`.
set -eu
ip link set lo up
mount -t tmpfs tmpfs /run
export DOCKER_HOST="unix://$folder/socket" DOCKER_CONFIG="$folder/config" DOCKER_BUILDKIT=0
# It ends with this world.
setpriv --pdeathsig KILL dockerd --storage-driver=vfs --iptables=false --ip6tables=false --bridge=none --data-root "$folder/docker" \
  --exec-root /run/docker --pidfile /run/docker.pid --host "$DOCKER_HOST" >"$folder/log" 2>&1 &
fail() {
  echo "$*" >&2
  tail -20 "$folder/log" >&2
  docker logs served >&2 || true
  exit 1
}
await() {
  what=$1
  shift
  tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "in vain: $what"
    sleep 0.1
  done
}
await dockerd docker version
tar --create --directory "$folder/built" . | docker import - build >&2
docker build --network none -t stepward "$folder/context" >&2 || fail "it does not build"
docker run --detach --name served --network host --read-only stepward >&2
state() { docker inspect --format "$1" served; }
is_healthy() { [ "$(state '{{.State.Health.Status}}')" = healthy ]; }
await "it is well: $(state '{{json .State}}')" is_healthy
user=$(stat -c %u "/proc/$(state '{{.State.Pid}}')")
docker stop served >&2
echo "healthy, $user, stopped with $(state '{{.State.ExitCode}}')"
