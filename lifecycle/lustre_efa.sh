#!/bin/bash
# Tells LNet, the network of Lustre, to use EFA before TCP. Runs at creation and again at every boot, before anything is
# mounted. Exit 0: EFA is in use, or the node has none. Anything else: TCP.
# https://docs.aws.amazon.com/fsx/latest/LustreGuide/configure-efa-clients.html
set -Eeuo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "${HERE}/common.sh"
PEER_CREDITS=32
OTHERWISE=2

# By driver and not by name: a p6-b200 node also shows its NVLink controllers here. In the order of the PCI bus.
efa_devices() {
  local path driver address
  for path in "${ROOT}"/sys/class/infiniband/*; do
    driver="$(readlink -f "${path}/device/driver" || true)"
    address="$(readlink -f "${path}/device" || true)"
    if [[ "${driver##*/}" == efa ]]; then
      echo "${address##*/} ${path##*/}"
    fi
  done | sort | awk '{ print $2 }'
}

# Reads lines and keeps some, evenly spread: every fourth of 32 is one for each PCI switch of a p5.
spread() { # how many
  awk -v wanted="$1" '{ line[NR] = $0 }
    END { if (wanted > NR) wanted = NR; for (i = 0; i < wanted; i++) print line[int(i * NR / wanted) + 1] }'
}

# More connections cost more of the 1024 that a file system takes from all of its clients.
wanted() { # instance type
  awk -v type="$1" -v otherwise="${OTHERWISE}" '$1 == type { found = $2 } END { print found ? found : otherwise }' \
    "${HERE}/lustre_efa_interfaces.conf"
}

default_interface() {
  awk '$2 == "00000000" { print $1; exit }' "${ROOT}/proc/net/route"
}

in_use() {
  lnetctl net show --net efa 2>/dev/null | grep -c 'nid:.*@efa' || true
}

set_up() { # network interface, EFA devices
  local interface="$1" device
  shift
  modprobe lnet
  modprobe kefalnd "ipif_name=${interface}"
  modprobe ksocklnd
  lnetctl lnet configure
  lnetctl net del --net tcp 2>/dev/null || true
  lnetctl net add --net tcp --if "${interface}"
  for device in "$@"; do
    lnetctl net add --net efa --if "${device}" --peer-credits "${PEER_CREDITS}"
  done
  lnetctl set discovery 1
  lnetctl udsp add --src efa --priority 0
  modprobe lustre
}

# Half a configuration would keep even TCP from mounting; none at all makes the client configure TCP by itself.
give_up() { # text
  trap - ERR
  say ERROR "$1"
  lnetctl lnet unconfigure 2>/dev/null || true
  exit 1
}

main() {
  local interface chosen
  mapfile -t chosen < <(efa_devices | spread "$(wanted "$(instance_type)")")
  if ((${#chosen[@]} == 0)); then
    say INFO "no EFA device: this node reads Lustre over TCP"
    return
  fi
  if (($(in_use) == ${#chosen[@]})); then
    say INFO "Lustre uses EFA already (${chosen[*]})"
    return
  fi
  trap 'give_up "failed: ${BASH_COMMAND}"' ERR
  interface="$(default_interface)"
  [[ -n "${interface}" ]] || give_up "no network interface has the default route"
  set_up "${interface}" "${chosen[@]}"
  (($(in_use) == ${#chosen[@]})) || give_up "LNet lists $(in_use) EFA interfaces instead of ${#chosen[@]}"
  say INFO "Lustre uses EFA (${chosen[*]})"
}

if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then
  main
fi
