#!/bin/sh
# Builds the Dockerfile with buildah where no registry of images can be reached, and tries what comes out.
#
#   build-image.sh SOURCES ADJUTANT CLAUDE FOLDER
#
# The images that it begins with are made here of Debian's own packages. Two programs in them are stand-ins, for time: `cargo`
# hands out the program ADJUTANT rather than compiling it again, `npm` the program CLAUDE rather than fetching it again. Every
# instruction of the Dockerfile is carried out as it stands there.
set -eu
sources=$1 adjutant=$2 claude=$3 folder=$4
mkdir -p "$folder/context"
container="buildah --storage-driver vfs --root $folder/images --runroot $folder/run"

[ -d "$folder/debian" ] || debootstrap --variant=minbase --include=ca-certificates bookworm "$folder/debian" >&2

# What the Dockerfile copies, without what .dockerignore leaves out.
cp -r "$sources/Dockerfile" "$sources/.dockerignore" "$sources/Cargo.toml" "$sources/tests" "$folder/context/"

base() { # NAME [PROGRAM SCRIPT FILE]: an image of Debian, with a stand-in and the file that it hands out
  made=$($container from scratch)
  $container add -q "$made" "$folder/debian" / > "$folder/log"
  if [ $# -gt 1 ]; then
    printf '%s\n' "$3" > "$folder/stand-in"
    chmod 755 "$folder/stand-in"
    $container copy -q "$made" "$folder/stand-in" "/usr/local/bin/$2" >> "$folder/log"
    $container copy -q "$made" "$4" /prepared >> "$folder/log"
  fi
  $container commit -q --rm "$made" "docker.io/library/$1" >> "$folder/log"
}
word() { grep "^FROM .*$1" "$sources/Dockerfile" | cut -d ' ' -f 2; }
base "$(word debian:)"
base "$(word rust:)" cargo '#!/bin/sh
[ "$*" = "build --release --locked --bin adjutant" ] && mkdir -p target/release && cp /prepared target/release/adjutant' "$adjutant"
base "$(word node:)" npm '#!/bin/sh
at=node_modules/@anthropic-ai/claude-code-linux-x64
[ "$*" = "ci --ignore-scripts" ] && [ -f package-lock.json ] && mkdir -p $at && cp /prepared $at/claude' "$claude"

$container build --isolation chroot --pull=never --format docker -q -t adjutant-image -f "$folder/context/Dockerfile" "$folder/context" >&2
$container inspect --type image adjutant-image > "$folder/inspected.json"

# As its user, at a root that nothing can be written to but what the volumes are for.
made=$($container from --pull=never adjutant-image)
inside="$container run --isolation chroot --user 10001:10001 $made --"
$inside adjutant --version
$inside claude --version
$inside sh -c 'id -u; touch /usr/local/bin/x 2>/dev/null && echo writable; touch /project/x /home/adjutant/x && echo volumes'
$inside adjutant token new bot > /dev/null
$inside sh -c 'cat /project/data/tokens.json | head -c 1'
