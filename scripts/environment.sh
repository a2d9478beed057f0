# Sourced by the other scripts: lets mpirun start a group on any machine.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1  # containers run as root
export OMPI_MCA_rmaps_base_oversubscribe=1                         # allow more ranks than cores

if [[ -t 2 && -z ${NO_COLOR:-} ]]; then
  say() { printf '\e[1m== %s\e[0m\n' "$*" >&2; }
else
  say() { printf '== %s\n' "$*" >&2; }
fi
