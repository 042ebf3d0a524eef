# shellcheck shell=bash
# Moves images and pod data from the small root volume to the node's own NVMe disks, or else to its extra EBS volume.
# Bind mounts keep every path, so neither containerd's configuration nor a driver that knows /var/lib/kubelet has to change.
MOUNT_WAIT_SECONDS="${DPD_MOUNT_WAIT_SECONDS:-60}"

use_data_disk() {
  local disk
  disk="$(data_disk)"
  if [[ -z "${disk}" ]]; then
    say WARN "no data disk is mounted: images and pod data stay on the root volume"
  elif mounted /var/lib/containerd && mounted /var/lib/kubelet; then
    say INFO "images and pod data are on a data disk already"
  else
    relocate "${disk}"
    say INFO "images and pod data are on ${disk}"
  fi
}

# The folder to use, or nothing. The image's own service mounts NVMe at boot and may still be at it.
data_disk() {
  if has_disks "Instance Storage" 1 && wait_for_mount /opt/dlami/nvme; then
    echo /opt/dlami/nvme
  elif has_disks "Elastic Block Store" 2 && wait_for_mount /opt/sagemaker; then
    echo /opt/sagemaker
  fi
}

has_disks() { # part of the model's name, least number
  local model found=0
  for model in "${ROOT}"/sys/block/nvme*/device/model; do
    if [[ -e "${model}" ]] && grep -q "$1" "${model}"; then
      found=$((found + 1))
    fi
  done
  ((found >= $2))
}

mounted() { # folder
  awk -v folder="$1" '$2 == folder { found = 1 } END { exit !found }' "${ROOT}/proc/mounts"
}

wait_for_mount() { # folder
  local waited=0
  until mounted "$1"; do
    ((waited < MOUNT_WAIT_SECONDS)) || return 1
    sleep 5
    waited=$((waited + 5))
  done
}

relocate() { # disk
  local service running=()
  for service in kubelet containerd; do
    if systemctl is-active --quiet "${service}"; then
      systemctl stop "${service}"
      running=("${service}" "${running[@]}")
    fi
  done
  for service in containerd kubelet; do
    mounted "/var/lib/${service}" || bind_mount "$1" "${service}"
  done
  for service in "${running[@]}"; do
    systemctl start "${service}"
  done
}

# Copies the folder of a service to the disk and mounts it in its old place, now and at every boot. What a run that was
# cut short left on the disk is thrown away. Without its disk the mount is skipped and the service finds the old copy.
bind_mount() { # disk, service
  local source="/var/lib/$2" target="$1/$2" unit="var-lib-$2.mount"
  rm -rf "${ROOT}${target:?}"
  mkdir -p "${ROOT}${source}" "${ROOT}${target}" "${ROOT}/etc/systemd/system"
  cp -a "${ROOT}${source}/." "${ROOT}${target}/"
  # No default dependencies: they would put this before local-fs.target, and so before the service that mounts the disk.
  cat >"${ROOT}/etc/systemd/system/${unit}" <<UNIT
[Unit]
Description=Data of $2 on $1
DefaultDependencies=no
ConditionPathIsMountPoint=$1
After=dlami-nvme.service
Before=$2.service umount.target
Conflicts=umount.target

[Mount]
What=${target}
Where=${source}
Type=none
Options=bind

[Install]
WantedBy=multi-user.target
UNIT
  systemctl daemon-reload
  systemctl enable --now "${unit}"
  mounted "${source}" || { say ERROR "${unit} did not mount ${target}"; return 1; }
}
