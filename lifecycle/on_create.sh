#!/bin/bash
# HyperPod runs this file as root on every node that it makes, once, before the node joins the cluster. The whole
# folder lies beside it. No network is used: a node that waits for one is a node that never joins. Exit 0 lets it join.
# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ClusterLifeCycleConfig.html
set -Eeuo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
LOG="${DPD_ROOT:-}/var/log/provision/provisioning.log"
# The agent of CloudWatch needs this long to send the log of a node that is about to go.
FAILURE_WAIT_SECONDS="${DPD_FAILURE_WAIT_SECONDS:-60}"

main() {
  # Again, since the shell that calls this has them off.
  set -Eeuo pipefail
  # Only here, so that even a file that is missing beside this one leaves its trace in the log.
  source "${HERE}/common.sh"
  source "${HERE}/data_disk.sh"
  trap 'say ERROR "failed: ${BASH_COMMAND} (line ${LINENO} of ${BASH_SOURCE[0]##*/})"' ERR
  say INFO "start of on_create.sh on $(instance_type)"
  use_data_disk
  case "$(setting lustre_efa)" in
    on) lustre_over_efa ;;
    off) say INFO "Lustre over EFA is off" ;;
    *) say ERROR "settings.conf: lustre_efa must be on or off"; return 1 ;;
  esac
  say INFO "end of on_create.sh"
}

# A node without EFA for Lustre still serves, over TCP; it must not look as if all were well.
lustre_over_efa() {
  if bash "${HERE}/lustre_efa.sh"; then
    # LNet forgets its networks at a reboot.
    install_at_boot
  else
    say ERROR "LUSTRE-EFA FAILED: this node reads Lustre over TCP, at a fraction of the speed. Fix the cause above, then replace the node."
  fi
}

install_at_boot() {
  local folder="/opt/hyperpod-dpd" unit="hyperpod-dpd-lustre-efa.service"
  mkdir -p "${ROOT}${folder}" "${ROOT}/etc/systemd/system"
  cp "${HERE}/common.sh" "${HERE}/lustre_efa.sh" "${HERE}/lustre_efa_interfaces.conf" "${HERE}/settings.conf" "${ROOT}${folder}/"
  cat >"${ROOT}/etc/systemd/system/${unit}" <<UNIT
[Unit]
Description=Lustre client over EFA
Wants=network-online.target
After=network-online.target
Before=kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/bash ${folder}/lustre_efa.sh

[Install]
WantedBy=multi-user.target
UNIT
  systemctl daemon-reload
  systemctl enable "${unit}"
}

mkdir -p "$(dirname "${LOG}")"
touch "${LOG}"
set +e
main 2>&1 | tee -a "${LOG}"
status="${PIPESTATUS[0]}"
set -e
if ((status != 0)); then
  echo "on_create.sh failed; waiting ${FAILURE_WAIT_SECONDS} s so that this log reaches CloudWatch" | tee -a "${LOG}"
  sync "${LOG}"
  sleep "${FAILURE_WAIT_SECONDS}"
fi
exit "${status}"
