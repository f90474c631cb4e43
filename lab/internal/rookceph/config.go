package rookceph

import (
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// Where daemons find things in a pod. As in Rook's, these are Ceph's own defaults, so that `ceph` in a container just
// works.
const (
	podConfigDir  = "/etc/ceph"
	podKeyringDir = "/etc/ceph/keyring-store"
	podRunDir     = "/run/ceph"
	podStateDir   = "/var/lib/ceph"
)

// place is where a ceph.conf is used: the same cluster is seen from a pod and from the machine.
type place struct {
	mon, mgr, osd string // data folders, with Ceph's $id
	run           string
	keyring       string // with Ceph's $name
}

func podPlace() place {
	return place{
		mon: podStateDir + "/mon/ceph-$id", mgr: podStateDir + "/mgr/ceph-$id", osd: podStateDir + "/osd/ceph-$id",
		run: podRunDir, keyring: podKeyringDir + "/keyring",
	}
}

func (c cluster) machinePlace() place {
	return place{
		mon: c.path("mon-$id"), mgr: c.path("mgr-$id"), osd: c.path("osd-$id"),
		run: c.path("run"), keyring: c.path("keys", "$name.keyring"),
	}
}

// config renders ceph.conf. Where the monitors are is no part of it for pods, which take that from where Rook's do.
func (c cluster) config(fsid, monHost string, p place) string {
	first, last := c.inst.Ports.CephDaemons()
	parts := []string{
		c.globalConfig(fsid, p, first, last),
		monHostConfig(monHost),
		monConfig,
		mgrConfig,
		osdConfig,
		clientConfig,
	}
	if c.topo.CephPeriods != instance.CephPeriodsDefault {
		parts = append(parts, fastPeriods)
	}
	return strings.Join(parts, "\n")
}

func monHostConfig(monHost string) string {
	if monHost == "" {
		return ""
	}
	return "mon_host = " + monHost + "\n"
}

func (c cluster) globalConfig(fsid string, p place, firstPort, lastPort int) string {
	return fmt.Sprintf(`[global]
fsid = %s
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr1 = false
ms_bind_port_min = %d
ms_bind_port_max = %d
ms_async_op_threads = 1

auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
auth_allow_insecure_global_id_reclaim = false
keyring = %s

mon_data = %s
mgr_data = %s
osd_data = %s
run_dir = %s
admin_socket = $run_dir/$name.asok
# What ran as root before may run as somebody else now.
setuser_match_path =
crash_dir = $run_dir/crash

# Logs go where kubectl logs finds them.
log_file =
log_to_stderr = true
err_to_stderr = true
log_stderr_prefix = "debug "
log_max_recent = 200
mon_cluster_log_to_file = false
mon_cluster_log_to_stderr = true
debug_rocksdb = 1/1
debug_bluestore = 1/1
debug_bluefs = 1/1

# Failures are noticed in seconds, and always in the same number of them.
osd_heartbeat_interval = 1
osd_heartbeat_grace = 6
mon_osd_adjust_heartbeat_grace = false
mon_osd_adjust_down_out_interval = false
mon_osd_down_out_interval = %d
# Whole zones go down here, and it is they who must be seen to.
mon_osd_min_up_ratio = 0.05
mon_osd_min_in_ratio = 0.1

osd_pool_default_size = %d
osd_pool_default_min_size = %d
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_max_pg_per_osd = 1000
mon_warn_on_pool_no_redundancy = false
# The machine's disk is no concern of the cluster.
mon_data_avail_warn = 2
mon_data_avail_crit = 1
`,
		fsid, firstPort, lastPort, p.keyring,
		p.mon, p.mgr, p.osd, p.run,
		int(c.topo.DownOut.Seconds()),
		c.replicas(), c.minReplicas())
}

// Stock intervals are made for networks and disks that are slow and many. Here they are what everything would wait for.
const monConfig = `[mon]
mon_tick_interval = 1
mon_lease = 2
mon_election_timeout = 1
mon_memory_autotune = false
rocksdb_cache_size = 16777216
`

// A manager imports every Python module it finds before it becomes active, a quarter of a second each on a busy
// machine. All that it may go without are named here.
const mgrConfig = `[mgr]
mgr_initial_modules = iostat
mgr_disabled_modules = alerts,cephadm,dashboard,diskprediction_local,influx,insights,k8sevents,localpool,mirroring,nfs,osd_perf_query,osd_support,prometheus,restful,rook,selftest,snap_schedule,stats,telegraf,test_orchestrator,zabbix
`

// Every OSD is a process of its own on a machine with few cores, so threads and caches are small, and recovery is not
// slowed down (osd_recovery_sleep = 0 would mean the value for the device class: the classes are set one by one).
//
// Closing a disk waits for the thread that polls it, and an OSD closes and reopens its disk several times while it
// starts: with the stock 250 ms that alone takes two seconds (bdev_aio_poll_ms). The kernel has 65,536 places in the
// queues of all its disks (fs.aio-max-nr), of which an OSD takes twice what it is told (bdev_aio_max_queue_depth): with
// the stock 1,024 the machine's 33rd would not start.
//
// The queue of operations is that of 16 in every release: the later one's ignores each of the sleeps here, and in
// tests.
//
// A stopping OSD tells the monitors instead of leaving it to its peers' broken connections, so that the last one on a
// machine is noticed as fast as the first; it waits for their answer no longer than a second.
const osdConfig = `[osd]
osd_objectstore = bluestore
bdev_aio_poll_ms = 25
bdev_aio_max_queue_depth = 128
bluestore_cache_autotune = false
bluestore_cache_size = 33554432
bluestore_rocksdb_options_annex = write_buffer_size=8388608,max_write_buffer_number=2,max_total_wal_size=33554432
osd_memory_target = 939524096
osd_op_queue = wpq
osd_op_num_shards = 2
osd_op_num_threads_per_shard = 1
osd_crush_update_on_start = true
osd_crush_initial_weight = 1
osd_recovery_sleep_hdd = 0
osd_recovery_sleep_ssd = 0
osd_recovery_sleep_hybrid = 0
osd_delete_sleep_hdd = 0
osd_delete_sleep_ssd = 0
osd_delete_sleep_hybrid = 0
osd_max_pg_per_osd_hard_ratio = 10
osd_max_markdown_count = 1000
osd_fast_shutdown = true
osd_fast_shutdown_notify_mon = true
osd_mon_shutdown_timeout = 1
`

// fastPeriods shortens how often daemons tell each other what they know, which is what most tests would wait for.
// Without it these are Ceph's own: 5 s, 5 s, 2 s, 5 s and 1 s.
const fastPeriods = `[global]
osd_mon_report_interval = 1
mgr_stats_period = 1
mgr_tick_period = 1
mon_mgr_digest_period = 1
paxos_propose_interval = 0.1
`

// Clients have neither a socket, which they would leave behind, nor anything to say on stderr.
const clientConfig = `[client]
admin_socket =
log_to_stderr = false
`
