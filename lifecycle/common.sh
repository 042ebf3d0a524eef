# shellcheck shell=bash
# Shared by the scripts of this folder, which source it and say in HERE where the folder is. ROOT is
# empty on a node; tests put a folder in front of every path.
ROOT="${DPD_ROOT:-}"

say() { # level, text
  printf '%s %s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$1" "$2"
}

# Value of a key of settings.conf; the last one wins. Read, never executed.
setting() { # key
  sed -n "s/^$1=//p" "${HERE}/settings.conf" | tail -n 1
}

# EC2's name of the instance type: p5.48xlarge. From the firmware, since asking the metadata service would be network.
instance_type() {
  cat "${ROOT}/sys/devices/virtual/dmi/id/product_name" 2>/dev/null || echo unknown
}
