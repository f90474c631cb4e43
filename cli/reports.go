package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/pghealth"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file says what is waited for because OSDs report seldom.

// slowReports is the period from which on it is worth saying that it costs time.
const slowReports = 2 * time.Second

// fieldFlush is the policy's field with which OSDs are told to report.
const fieldFlush = "spec.ceph.flushPGStats"

// flushRemedy is what to do when OSDs cannot be told to report.
const flushRemedy = "give lockkeeper's Ceph user the capability osd '" + ceph.FlushOSDCaps + "', and add '" +
	ceph.FlushMonCaps + "' to its capability mon, or set " + fieldFlush + " to false"

// everySecond is how long a proof takes when OSDs report, and the manager speaks, every second.
const everySecond = 3 * time.Second

// flushRefused finds the keeper's note that OSDs could not be told to report; "" for none.
func flushRefused(notes []string) string {
	for _, note := range notes {
		if strings.HasPrefix(note, fieldFlush) {
			return note
		}
	}
	return ""
}

// remedyOf is what to do about what a keeper notes of its storage cluster, which keeps nothing closed by itself.
func remedyOf(kind storage.Kind, note string) string {
	switch {
	case strings.Contains(note, evictRights):
		return "apply it in Longhorn's namespace, or have the policy not say evictOnRemoval"
	case kind == storage.Longhorn:
		return "mend what it names: what that may be about stays protected until then"
	case strings.HasPrefix(note, fieldFlush):
		return flushRemedy
	case strings.HasPrefix(note, storageview.FlagNote):
		return "unset it when whoever set it is done: the PGs decide, and they may not become clean meanwhile"
	default: // the mons do not commit
		return "if access is denied, give lockkeeper's Ceph user the rights of deploy/ceph-caps.txt; otherwise a mon hangs " +
			"or has just died: `ceph -s`"
	}
}

// evictRights are what it takes to have Longhorn move replicas.
const evictRights = "deploy/storage-namespace-longhorn-evict.yaml"

// proofTakes is how long lockkeeper waits until Ceph's word counts after something changed; 0: not known.
func proofTakes(k *workflows.KeeperStatus, flush bool) time.Duration {
	takes := pghealth.Takes(k.ReportPeriod, k.LivedFor)
	if flush && flushRefused(k.View.Notes) == "" && takes > 0 {
		return min(takes, pghealth.FlushTakes)
	}
	return takes
}

// describeWait says how long a batch or an opening waits for reports; "" when it is not known.
func describeWait(k *workflows.KeeperStatus, flush bool) string {
	if k == nil {
		return ""
	}
	takes := proofTakes(k, flush)
	if takes == 0 {
		return ""
	}
	return fmt.Sprintf("about %s until the OSDs, which report every %s, have shown that they live and that the data is "+
		"whole; Ceph's own time to recover comes on top",
		takes.Round(time.Second/10), k.ReportPeriod.Round(time.Second/10))
}

// reports says what shorter periods, or telling OSDs to report, would save.
func (d *Doctor) reports(p *v1alpha1.MaintenancePolicy, name string, k *workflows.KeeperStatus) {
	flush := p.Spec.Ceph != nil && p.Spec.Ceph.FlushPGStats
	note := flushRefused(k.View.Notes)
	if note != "" {
		d.found(FoundWarning, name+": "+note, flushRemedy)
	}
	period := k.ReportPeriod.Round(time.Second / 10)
	switch slow := pghealth.Takes(k.ReportPeriod, k.LivedFor).Round(time.Second / 10); {
	case k.ReportPeriod < slowReports:
	case flush && note == "":
		d.ok("%s: OSDs report every %s, and at once when they are told to: a proof takes about %s", name, period,
			proofTakes(k, flush).Round(time.Second/10))
	default:
		less := func(takes time.Duration) string { return fmt.Sprintf("%s (%s less)", takes, max(slow-takes, 0)) }
		d.ok("%s: OSDs report every %s, so each batch of a rollout waits for about %s. With mgr_stats_period and "+
			"mgr_tick_period of 1 s it would be %s, with %s %s",
			name, period, slow, less(everySecond), fieldFlush, less(pghealth.FlushTakes))
	}
}
