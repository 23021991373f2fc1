docker ps --format '{{.Names}}'
