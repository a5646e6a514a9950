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
# The rooms of ops: plan <- bind <- tile <- dense, token; dense <- inference; token <- sparse, indexer.
forbid ops/plan 'ops/(bind|tile|dense|token|inference|sparse|indexer)/'
forbid ops/bind 'ops/(tile|dense|token|inference|sparse|indexer)/'
forbid ops/tile 'ops/(dense|token|inference|sparse|indexer)/'
forbid ops/dense 'ops/(token|inference|sparse|indexer)/'
forbid ops/token 'ops/(dense|inference|sparse|indexer)/'
forbid ops/inference 'ops/(token|sparse|indexer)/'
forbid ops/sparse 'ops/(dense|inference|indexer)/'
forbid ops/indexer 'ops/(dense|inference|sparse)/'
exit "$failed"
