#!/bin/sh
# Usage: check_docs.sh BUILD_DIR
# Builds the documentation site with scripts/docs.sh in BUILD_DIR/docs. Warnings, broken links and undocumented public
# names are failures.
#
# FA_WITHOUT_PYTHON=1: builds nothing and returns 77, for machines where pip finds no MkDocs.
set -eu
if [ "${FA_WITHOUT_PYTHON:-}" = 1 ]; then
  echo "FA_WITHOUT_PYTHON=1: the documentation is not built"
  exit 77
fi
exec "$(dirname "$0")/docs.sh" "$1/docs"
