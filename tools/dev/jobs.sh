# Sourced by tools/dev/setup.sh: computes from cores and memory how many jobs a build may run at the same time.

# Memory in MiB that the largest translation unit of a build needs.
readonly JOB_MIB=1024

# cgroup_folders CONTROLLER PROC CGROUP: prints the control group of this process and its ancestors, for versions 1 and 2.
cgroup_folders() {
  local controllers path mount
  while IFS=: read -r _ controllers path; do
    case ",$controllers," in
      ,,) mount="$3" ;;
      *",$1,"*) mount="$3/$1" ;;
      *) continue ;;
    esac
    path="${path%/}"
    while echo "$mount$path" && [ -n "$path" ]; do path="${path%/*}"; done
  done <"$2/self/cgroup"
}

# number FILE: prints the number at the start of the file. Prints nothing if the file does not exist or contains no limit.
number() { grep -om1 '^[0-9]\+' "$1" 2>/dev/null || true; }

# usable_mib [PROC CGROUP]: prints the free memory in MiB, within the limits of the control groups.
usable_mib() {
  local proc="${1:-/proc}" cgroup="${2:-/sys/fs/cgroup}" least folder limit used cached left
  least=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' "$proc/meminfo")
  while read -r folder; do
    limit=$(number "$folder/memory.max")$(number "$folder/memory.limit_in_bytes")
    used=$(number "$folder/memory.current")$(number "$folder/memory.usage_in_bytes")
    # version 1 writes a number near 2^63 if there is no limit
    [ -n "$limit" ] && [ -n "$used" ] && [ ${#limit} -lt 18 ] || continue
    cached=$(awk '/^(total_)?inactive_file / {most = $2 > most ? $2 : most} END {print most + 0}' "$folder/memory.stat" 2>/dev/null || echo 0)
    left=$(((limit - used + cached) / 1048576))
    [ "$left" -ge "$least" ] || least=$left
  done < <(cgroup_folders memory "$proc" "$cgroup")
  echo "$((least > 0 ? least : 0))"
}

# usable_cores [PROC CGROUP]: prints the number of cores that this process may use, within the quota of the control groups.
usable_cores() {
  local proc="${1:-/proc}" cgroup="${2:-/sys/fs/cgroup}" least folder quota period
  least=$(nproc)
  while read -r folder; do
    read -r quota period 2>/dev/null <"$folder/cpu.max" || { quota=$(number "$folder/cpu.cfs_quota_us"); period=$(number "$folder/cpu.cfs_period_us"); }
    [[ "$quota" =~ ^[0-9]+$ && "$period" =~ ^[1-9][0-9]*$ ]] || continue
    quota=$(((quota + period - 1) / period))
    [ "$quota" -ge "$least" ] || least=$quota
  done < <(cgroup_folders cpu "$proc" "$cgroup")
  echo "$((least > 0 ? least : 1))"
}

# jobs_for CORES MIB: prints the number of cores, or a smaller number if memory is the limit.
jobs_for() {
  local fit=$(($2 / JOB_MIB))
  [ "$fit" -ge 1 ] || fit=1
  echo "$((fit < $1 ? fit : $1))"
}

# say_jobs: prints one line if memory limits the number of jobs.
say_jobs() {
  [ "$JOBS" -ge "$CORES" ] || [ -n "$JOBS_GIVEN" ] || say "$JOBS at a time on $CORES cores: $MEMORY_MIB MiB of memory are free (JOBS=N decides otherwise)"
}

readonly CORES="$(usable_cores)" MEMORY_MIB="$(usable_mib)" JOBS_GIVEN="${JOBS:-}"
readonly JOBS="${JOBS:-$(jobs_for "$CORES" "$MEMORY_MIB")}"
