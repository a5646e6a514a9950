#!/bin/sh
# Usage: docs.sh [FOLDER]
#
# Builds the documentation site in FOLDER/site (FOLDER: build/docs). MkDocs makes the pages of docs/, mkdoxy those of
# the C and C++ headers, and mkdocstrings those of Python. The Python sources are only read, so nothing is compiled.
# Warnings and broken links are errors, and so is whatever a page would load from elsewhere. scripts/setup.sh installs
# Doxygen; MkDocs comes from PyPI into FOLDER/venv.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/docs}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

command -v doxygen >/dev/null || { echo "docs: no doxygen; scripts/setup.sh installs it" >&2; exit 1; }
wanted=scripts/docs/requirements.txt
if ! cmp -s "$wanted" "$folder/venv/requirements.txt"; then
  rm -rf "$folder/venv"
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" --disable-pip-version-check --no-input install -qq --no-compile -r "$wanted"
  cp "$wanted" "$folder/venv/requirements.txt"
fi

rm -rf "$folder/pages" "$folder/site" "$folder/checked" "$folder/undocumented"
mkdir -p "$folder/pages/javascripts" "$folder/pages/stylesheets"
doxygen_of() {
  { cat scripts/docs/Doxyfile; printf '%s\n' "$@"; } >"$folder/Doxyfile"
  doxygen "$folder/Doxyfile"
}
doxygen_of "OUTPUT_DIRECTORY = $folder/checked" "EXTRACT_ALL = YES" "WARN_AS_ERROR = FAIL_ON_WARNINGS"

# Every public type and every function outside a class says what it is; fields and getters may go without.
doxygen_of "OUTPUT_DIRECTORY = $folder/undocumented" "EXTRACT_ALL = NO" \
  "WARN_IF_UNDOCUMENTED = YES" "WARN_LOGFILE = $folder/undocumented.txt"
if grep -E 'warning: (Compound|Member .* \((function|enumeration|typedef)\) of (namespace|file))' "$folder/undocumented.txt"; then
  echo "docs: public names without a comment" >&2
  exit 1
fi

python3 scripts/docs/stage.py "$folder/pages"
cp scripts/docs/mkdocs.yml "$folder/mkdocs.yml"
cp scripts/docs/iframe-worker.js "$folder/pages/javascripts/"
cp scripts/docs/extra.css "$folder/pages/stylesheets/"
sed -i "s|\.\./\.\./|$PWD/|" "$folder/mkdocs.yml"
# The theme's advice about future versions of MkDocs is no warning about these pages.
NO_MKDOCS_2_WARNING=1 "$folder/venv/bin/mkdocs" build --quiet --strict --config-file "$folder/mkdocs.yml"
# This page is for servers only, because its links are absolute.
rm "$folder/site/404.html"
exec python3 scripts/docs/check_site.py "$folder/site"
