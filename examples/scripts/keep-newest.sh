# Removes all but the newest $KEEP archives of $FOLDER.
set -eu
removed=0
for old in $(ls -1t "$FOLDER"/backup-*.tar.gz | tail -n "+$((KEEP + 1))"); do
  rm -- "$old"
  removed=$((removed + 1))
done
echo "removed $removed, kept at most $KEEP"
echo "removed=$removed" >> "$STEPWARD_OUTPUT"
