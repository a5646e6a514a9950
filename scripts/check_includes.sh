#!/bin/sh
# Includes point down: ops -> tiling -> layout -> core. Planning knows neither threads, kernels nor the operating system.
set -eu
cd "$(dirname "$0")/.."

failed=0
# forbid FOLDER PATTERN: no file under src/FOLDER includes a header whose path matches PATTERN.
forbid() {
  if grep -rnE --include='*.h' --include='*.cc' "^ *#include [<\"]($2)" "src/$1"; then
    echo "src/$1 must not include these"
    failed=1
  fi
}
forbid core 'layout/|tiling/|ops/'
forbid layout 'tiling/|ops/'
forbid tiling 'ops/|core/kernels/|core/executor|tbb/|oneapi/|hwloc|thread|mutex|atomic'
forbid ops 'tbb/|oneapi/|hwloc|cblas'
exit "$failed"
