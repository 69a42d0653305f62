#!/bin/sh
# Make the secrets of docker-compose.yml, once: the deployment key, the database's password, the object store's identity.
# They are in compose/private, a folder that only you may enter, and in .env (mode 0600).
set -eu
cd "$(dirname "$0")/.."
private=compose/private
if [ -e .env ] || [ -e "$private" ]; then
    echo "there is a .env or $private already; remove both to begin anew (runs under way cannot be resumed then)" >&2
    exit 1
fi
umask 077
word() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

mkdir -p "$private/home"
head -c 32 /dev/urandom > "$private/key"      # the worker's
cp "$private/key" "$private/home/key"         # yours, for commands on this host
cp compose/profiles.toml "$private/home/profiles.toml"
access=$(word)
secret=$(word)
cat > "$private/s3.json" <<JSON
{"identities": [{"name": "treadle", "credentials": [{"accessKey": "$access", "secretKey": "$secret"}],
  "actions": ["Read", "Write", "List", "Tagging"]}]}
JSON
chmod 644 "$private/s3.json" # the object store runs as a user of its own; the folder keeps others out
user=$(id -u)
group=$(id -g)
if [ "$user" = 0 ]; then # the worker does not run as root
    user=10001 group=10001
    chown "$user:$group" "$private/key"
fi
guest=23bc46b1-71f6-4ed5-8c54-816aa4f8c502:123zO3xZCLrMN6v2BKK1dXYFpXlPkccOFqm12CdAsMgRU4VrNZ9lyGVCGuMDGIwP # as published
cat > .env <<ENV
POSTGRES_PASSWORD=$(word)
AWS_ACCESS_KEY_ID=$access
AWS_SECRET_ACCESS_KEY=$secret
TREADLE_UID=$user
TREADLE_GID=$group
TREADLE_KEY=$(base64 < "$private/key" | tr -d '\n')
TREADLE_SECRET_OPENWHISK=$guest
OPENWHISK_IMAGE=openwhisk/standalone:1.0.0
ENV
mkdir "$private/home/secrets" # for commands on this host
printf %s "$access" > "$private/home/secrets/store-id"
printf %s "$secret" > "$private/home/secrets/store-key"
echo "written: .env, $private"
