#!/bin/sh
# Write docker-compose.override.yml, which names the image of every service by the digest that the registry has for its
# tag now. From then on Compose pulls those very images. Needs Docker with buildx, and the registries.
set -eu
cd "$(dirname "$0")/.."
override=docker-compose.override.yml
if [ -e "$override" ]; then
    echo "there is a $override already; remove it, or put the images' digests into it yourself" >&2
    exit 1
fi
[ ! -e .env ] || OPENWHISK_IMAGE=${OPENWHISK_IMAGE:-$(sed -n 's/^OPENWHISK_IMAGE=//p' .env)}
written=$(mktemp)
trap 'rm -f "$written"' EXIT
echo "services:" > "$written"
sed -n 's/^  \([a-z0-9-]*\):.*/service \1/p; s/^    image: /image /p' docker-compose.yml |
    while read -r what value; do
        case $what:$value in
            service:*) service=$value; continue ;;
            image:treadle:*) continue ;; # built from this folder
            image:'${OPENWHISK_IMAGE'*) value=${OPENWHISK_IMAGE:-openwhisk/standalone:1.0.0} ;;
        esac
        digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$value")
        case $digest in
            sha256:*) ;;
            *) echo "$value: the registry gave no digest, but: $digest" >&2; exit 1 ;;
        esac
        printf '  %s: {image: "%s@%s"}\n' "$service" "${value%@*}" "$digest" >> "$written"
    done
cp "$written" "$override"
echo "written: $override"
