name=stroem
echo "${#name}"
