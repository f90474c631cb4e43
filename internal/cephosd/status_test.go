package cephosd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 5, time.UTC)

func osdCounts(upToDate, outOfDate, unready, skipped int) activities.OSDSetCounts {
	return activities.OSDSetCounts{Counts: rollout.Counts{
		Total: upToDate + outOfDate + unready, UpToDate: upToDate,
		OutOfDate: outOfDate, Unready: unready, Skipped: skipped,
	}}
}

// reported is a report with what every one of them has.
func reported(change func(r *activities.OSDSetReport)) activities.OSDSetReport {
	r := activities.OSDSetReport{
		OSDSet:     activities.OSDSetRef{Namespace: "ceph", Name: "osds"},
		WorkflowID: "update-osds/ceph/osds", Template: "new", Generation: 2, Since: noon, Counted: true,
		Counts: osdCounts(2, 3, 1, 0), Phase: "AwaitingOSDs",
	}
	change(&r)
	return r
}

// conditions are their names, each with what it begins with: True, False, Unknown.
func conditions(s cephv1alpha1.CephOSDStatus) string {
	var all []string
	for _, c := range s.Conditions {
		all = append(all, fmt.Sprintf("%s=%c:%s", c.Type, c.Status[0], c.Reason))
	}
	return strings.Join(all, " ")
}

func TestStatus(t *testing.T) {
	nobody := []input.Error{{Field: "spec.storage[0].hosts[0]", Value: "nobody", Allowed: "must be a node"}}
	halt := &activities.Halt{Reason: "osd.3 to serve took longer than its deadline", Since: noon}
	crashes := suspect{osd: "osd.3", why: "pod osd-a: its container osd waits: CrashLoopBackOff"}
	for name, c := range map[string]struct {
		report              func(r *activities.OSDSetReport)
		cause               suspect
		reason, message, is string
	}{
		"rolling out": {
			report: func(r *activities.OSDSetReport) { r.Message = "osd.3 to serve" },
			reason: "RollingOut", message: "waits for osd.3 to serve",
			is: "Valid=T:Valid UpToDate=F:RollingOut Progressing=T:RollingOut Halted=F:NotHalted",
		},
		"up to date": {
			report: func(r *activities.OSDSetReport) { r.Counts = osdCounts(6, 0, 0, 0) },
			reason: "UpToDate", is: "Valid=T:Valid UpToDate=T:UpToDate Progressing=F:UpToDate Halted=F:NotHalted",
		},
		"all pods are made, but the data is not whole yet": {
			report: func(r *activities.OSDSetReport) {
				r.Counts, r.Batch, r.Message = osdCounts(6, 0, 0, 0), &activities.OSDSetBatch{OSDs: []string{"osd.3"}, Since: noon},
					"the storage to be whole again"
			},
			reason: "RollingOut", message: "waits for the storage to be whole again",
			is: "Valid=T:Valid UpToDate=F:RollingOut Progressing=T:RollingOut Halted=F:NotHalted",
		},
		"up to date but for some": {
			report: func(r *activities.OSDSetReport) {
				r.Counts, r.Skipped = osdCounts(1, 5, 0, 5), strings.Fields("osd.1 osd.2 osd.3 osd.4 osd.5")
				r.Waiting = []activities.Superfluous{{Key: "b:/dev/sdb", Why: "its data is needed"}}
			},
			reason: "UpToDate",
			message: "skipped until the template changes: osd.1, osd.2, osd.3, osd.4 and 1 more; b:/dev/sdb is no longer in " +
				"the spec, and stays: its data is needed",
			is: "Valid=T:Valid UpToDate=T:UpToDate Progressing=F:UpToDate Halted=F:NotHalted",
		},
		"halted": {
			report: func(r *activities.OSDSetReport) { r.Halted = halt }, cause: crashes,
			reason: "Halted",
			message: "osd.3 to serve took longer than its deadline; osd.3: pod osd-a: its container osd waits: " +
				"CrashLoopBackOff; " +
				"mend the template or the cause, and it goes on by itself; or excuse the OSD: lockkeeper skip " +
				"update-osds/ceph/osds osd.3",
			is: "Valid=T:Valid UpToDate=F:Halted Progressing=F:Halted Halted=T:Halted",
		},
		"halted comes before all else": {
			report: func(r *activities.OSDSetReport) {
				r.Halted, r.Refused, r.Holds, r.Counted = halt, nobody, activities.HoldStorage, false
			},
			reason: "Halted",
			message: "osd.3 to serve took longer than its deadline; mend the template or the cause, and it goes on by itself; " +
				"or excuse the OSD: lockkeeper skip update-osds/ceph/osds OSD",
			is: "Valid=F:Refused UpToDate=U:Halted Progressing=F:Halted Halted=T:Halted",
		},
		"aborted while it was halted": {
			report: func(r *activities.OSDSetReport) { r.Halted, r.Outcome = halt, "Aborted" }, cause: crashes,
			reason: "Halted",
			message: "osd.3 to serve took longer than its deadline; osd.3: pod osd-a: its container osd waits: " +
				"CrashLoopBackOff; " +
				"the rollout ended: Aborted. The next change begins it anew, and so does lockkeeper update-osds ceph/osds",
			is: "Valid=T:Valid UpToDate=F:Halted Progressing=F:Halted Halted=T:Halted",
		},
		"refused": {
			report: func(r *activities.OSDSetReport) {
				r.Refused, r.Counted, r.Holds = append(nobody, nobody...), false, activities.HoldPaused
			},
			reason: "Refused", message: `spec.storage[0].hosts[0]: "nobody": must be a node; and 1 more`,
			is: "Valid=F:Refused UpToDate=U:Refused Progressing=F:Refused Halted=F:NotHalted",
		},
		"a host is no node, and the others go on": {
			report: func(r *activities.OSDSetReport) { r.Warned, r.Message = nobody, "osd.3 to serve" },
			reason: "RollingOut", message: "waits for osd.3 to serve",
			is: "Valid=F:HostsUnknown UpToDate=F:RollingOut Progressing=T:RollingOut Halted=F:NotHalted",
		},
		"a host is no node, and does not hide a halt": {
			report: func(r *activities.OSDSetReport) { r.Warned, r.Halted, r.Outcome = nobody, halt, "Aborted" },
			reason: "Halted",
			message: "osd.3 to serve took longer than its deadline; the rollout ended: Aborted. The next change begins it " +
				"anew, and so does lockkeeper update-osds ceph/osds",
			is: "Valid=F:HostsUnknown UpToDate=F:Halted Progressing=F:Halted Halted=T:Halted",
		},
		"Ceph does not answer": {
			report: func(r *activities.OSDSetReport) {
				r.Counted, r.Counts, r.Holds, r.Message = false, activities.OSDSetCounts{}, activities.HoldStorage,
					"the storage cluster: no quorum"
			},
			reason: "AwaitingStorage", message: "waits for the storage cluster: no quorum",
			is: "Valid=T:Valid UpToDate=U:AwaitingStorage Progressing=F:AwaitingStorage Halted=F:NotHalted",
		},
		"aborted": {
			report: func(r *activities.OSDSetReport) {
				r.Outcome, r.Phase, r.Holds = "Aborted", "Aborted", activities.HoldPaused
			},
			reason:  "Stopped",
			message: "the rollout ended: Aborted. The next change begins it anew, and so does lockkeeper update-osds ceph/osds",
			is:      "Valid=T:Valid UpToDate=F:Stopped Progressing=F:Stopped Halted=F:NotHalted",
		},
		"aborted when all was done": {
			report: func(r *activities.OSDSetReport) { r.Outcome, r.Counts = "Aborted", osdCounts(6, 0, 0, 0) },
			reason: "UpToDate", is: "Valid=T:Valid UpToDate=T:UpToDate Progressing=F:UpToDate Halted=F:NotHalted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := statusOf(reported(c.report), c.cause, cephv1alpha1.CephOSDStatus{})
			require.Equal(t, []string{c.reason, c.message, c.is}, []string{s.Reason, s.Message, conditions(s)})
			require.Equal(t, noon.Truncate(time.Second), s.Since.UTC())
			for _, condition := range s.Conditions {
				require.NotEmpty(t, condition.Message)
			}
		})
	}
}

// Why nothing goes on is the status's reason, and whether that is progress all the same.
func TestStatusHeldBack(t *testing.T) {
	for holds, c := range map[string]struct {
		reason, progressing string
	}{
		activities.HoldPaused:   {"Paused", "F"},
		activities.HoldWindow:   {"OutsideWindow", "F"},
		activities.HoldApproval: {"AwaitingApproval", "F"},
		activities.HoldSoak:     {"SoakingCanary", "T"},
		activities.HoldPause:    {"PauseBetween", "T"},
		activities.HoldLease:    {"AwaitingLease", "T"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			s := statusOf(reported(func(r *activities.OSDSetReport) { r.Holds, r.Message = holds, "a person" }), suspect{},
				cephv1alpha1.CephOSDStatus{})
			require.Equal(t, []string{c.reason, "waits for a person"}, []string{s.Reason, s.Message})
			require.Equal(t, strings.ReplaceAll("Valid=T:Valid UpToDate=F:? Progressing="+c.progressing+":? Halted=F:NotHalted",
				"?", c.reason), conditions(s))
		})
	}
}

// What is not known now is what it was; of another template nothing is known.
func TestStatusWithoutCounts(t *testing.T) {
	had := statusOf(reported(func(r *activities.OSDSetReport) {
		r.Waiting = []activities.Superfluous{{Key: "b:/dev/sdb", Why: "its data is needed"}}
	}), suspect{}, cephv1alpha1.CephOSDStatus{})
	silent := func(r *activities.OSDSetReport) {
		r.Counted, r.Counts, r.Holds = false, osdCounts(0, 0, 0, 0), activities.HoldStorage
	}
	s := statusOf(reported(silent), suspect{}, had)
	require.Equal(t, "2/6", s.Progress)
	require.Equal(t, had.OSDs, s.OSDs)
	require.Equal(t, had.Superfluous, s.Superfluous)

	s = statusOf(reported(func(r *activities.OSDSetReport) { silent(r); r.Template = "newer" }), suspect{}, had)
	require.Empty(t, s.Progress)
	require.Zero(t, s.OSDs)
	require.Empty(t, s.Superfluous)
}

// What came before leaves nothing behind but our own conditions, and since when it has been so.
func TestStatusAfterAnother(t *testing.T) {
	foreign := cephv1alpha1.CephOSDStatus{
		Conditions: []metav1.Condition{{Type: "Running", Status: metav1.ConditionTrue, Reason: "Successful"}},
	}
	halted := statusOf(reported(func(r *activities.OSDSetReport) {
		r.Halted = &activities.Halt{Reason: "osd.3", Since: noon}
		r.Warned = []input.Error{{Field: "spec.storage[0].hosts[0]", Value: "nobody"}}
	}), suspect{}, foreign)
	require.Len(t, halted.Conditions, 4)
	require.Nil(t, meta.FindStatusCondition(halted.Conditions, "Running"))

	later := func(r *activities.OSDSetReport) { r.Since = noon.Add(time.Hour) }
	s := statusOf(reported(later), suspect{}, halted)
	require.Equal(t, noon.Add(time.Hour).Truncate(time.Second), s.Since.UTC())
	text, err := json.Marshal(s)
	require.NoError(t, err)
	require.NotContains(t, string(text), "nobody")
	require.Nil(t, s.Halted)

	again := statusOf(reported(func(r *activities.OSDSetReport) {
		r.Since, r.Message = noon.Add(2*time.Hour),
			"something else"
	}), suspect{}, s)
	require.Equal(t, s.Since, again.Since, "it is still rolling out")
}

// The lists of a status are no longer than the CRD lets them be: otherwise nobody would hear of anything any more.
func TestStatusIsBounded(t *testing.T) {
	s := statusOf(reported(func(r *activities.OSDSetReport) {
		for range 5000 {
			r.Refused, r.Warned = append(r.Refused, input.Error{Field: "f"}), append(r.Warned, input.Error{Field: "f"})
			r.Skipped, r.Waiting = append(r.Skipped, "osd.1"),
				append(r.Waiting, activities.Superfluous{Key: "a:/dev/sdb", Why: strings.Repeat("long ", 100)})
		}
	}), suspect{}, cephv1alpha1.CephOSDStatus{})
	require.Equal(t, []int{64, 4096, 16}, []int{len(s.Refused), len(s.Skipped), len(s.Superfluous)})
}

func TestNews(t *testing.T) {
	batch := func(phase string, osds ...string) func(r *activities.OSDSetReport) {
		return func(r *activities.OSDSetReport) {
			r.Phase, r.Batch = phase, &activities.OSDSetBatch{
				Domain: storage.FailureDomain{Type: "zone", Name: "a"},
				OSDs:   osds, Since: noon,
			}
		}
	}
	wrong := func(fields ...string) func(r *activities.OSDSetReport) {
		return func(r *activities.OSDSetReport) {
			for _, f := range fields {
				r.Refused = append(r.Refused, input.Error{Field: f, Value: "x", Allowed: "must be y"})
			}
		}
	}
	halted := func(at time.Time) func(r *activities.OSDSetReport) {
		return func(r *activities.OSDSetReport) {
			batch("AwaitingOSDs", "osd.3")(r)
			r.Halted = &activities.Halt{Reason: "osd.3 is late", Since: at}
		}
	}
	worded := func(words string, f func(r *activities.OSDSetReport)) func(r *activities.OSDSetReport) {
		return func(r *activities.OSDSetReport) { f(r); r.Message = words }
	}
	nothing := func(*activities.OSDSetReport) {}
	for name, c := range map[string]struct {
		had, now func(r *activities.OSDSetReport)
		want     []string
	}{
		"a reason": {nothing, func(r *activities.OSDSetReport) {
			r.Holds,
				r.Message = activities.HoldLease, "the lease"
		}, []string{"Normal AwaitingLease waits for the lease"}},
		"the same, worded anew": {
			worded("3 PGs", batch("Healing", "osd.3")),
			worded("2 PGs", batch("Healing", "osd.3")), nil,
		},
		"a phase": {
			batch("Replacing", "osd.3"), worded("osd.3", batch("AwaitingOSDs", "osd.3")),
			[]string{"Normal RollingOut waits for osd.3"},
		},
		"a batch": {
			batch("Replacing", "osd.3"), batch("Replacing", "osd.4"),
			[]string{"Normal RollingOut Replacing"},
		},
		"the end of a batch": {batch("Healing", "osd.3"), nothing, nil},
		"all is done": {
			nothing, func(r *activities.OSDSetReport) { r.Counts = osdCounts(6, 0, 0, 0) },
			[]string{"Normal UpToDate 6/6 OSDs are up to date"},
		},
		"every field that is wrong": {
			nothing, wrong("a", "b"),
			[]string{`Warning Refused a: "x": must be y`, `Warning Refused b: "x": must be y`},
		},
		"one more field": {wrong("a"), wrong("a", "b"), []string{`Warning Refused b: "x": must be y`}},
		"a field less":   {wrong("a", "b"), wrong("b"), nil},
		"a host that is no node": {nothing, func(r *activities.OSDSetReport) {
			wrong("h")(r)
			r.Warned,
				r.Refused = r.Refused, nil
		}, []string{`Warning Refused h: "x": must be y`}},
		"very many fields": {
			nothing, wrong(strings.Split(strings.Repeat("a", 20), "")...),
			append(repeat(`Warning Refused a: "x": must be y`, 16),
				"Warning Refused 4 more fields make no sense: status.refused lists them"),
		},
		"a halt": {batch("AwaitingOSDs", "osd.3"), halted(noon), []string{"Warning Halted osd.3 is " +
			"late; mend the template or the cause, and it goes on by itself; or excuse the OSD: lockkeeper skip " +
			"update-osds/ceph/osds OSD"}},
		"the same halt": {halted(noon), worded("more", halted(noon)), nil},
		"the next halt": {halted(noon), halted(noon.Add(time.Hour)), []string{"Warning Halted osd.3 is " +
			"late; mend the template or the cause, and it goes on by itself; or excuse the OSD: lockkeeper skip " +
			"update-osds/ceph/osds OSD"}},
		"the halt is over":           {halted(noon), batch("Healing", "osd.3"), []string{"Normal RollingOut Healing"}},
		"the spec makes sense again": {wrong("a"), nothing, []string{"Normal RollingOut AwaitingOSDs"}},
		"another phase while it halted": {
			halted(noon),
			func(r *activities.OSDSetReport) { halted(noon)(r); r.Phase = "Resting" }, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			had := statusOf(reported(c.had), suspect{}, cephv1alpha1.CephOSDStatus{})
			var got []string
			for _, n := range newsOf(had, statusOf(reported(c.now), suspect{}, had)) {
				got = append(got, n.kind+" "+n.reason+" "+n.message)
			}
			require.Equal(t, c.want, got)
		})
	}
}

func repeat(s string, n int) (out []string) {
	for range n {
		out = append(out, s)
	}
	return out
}

func TestSuspect(t *testing.T) {
	pod := func(host string, labels map[string]string, edit func(p *corev1.Pod)) podspec.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "osd-" + host, Labels: labels}}
		edit(p)
		return podspec.Pod{Pod: p, OSD: podspec.OSD{Host: host, Data: "/dev/sdb"}}
	}
	waits := func(reason string) func(p *corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "osd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}},
			}
		}
	}
	ready := func(p podspec.Pod) podspec.Pod { p.Ready = true; return p }
	named := func(id string) map[string]string { return map[string]string{podspec.IDLabel: id} }
	plain := func(*corev1.Pod) {}
	a, b := pod("a", named("1"), waits("ImagePullBackOff")), pod("b", nil, waits("CrashLoopBackOff"))
	nowhere := pod("c", nil, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: "0/3 nodes are available",
		}}
	})
	for name, c := range map[string]struct {
		seen  podspec.Classified
		batch []string
		want  string
	}{
		"by its name": {
			podspec.Classified{NotReady: []podspec.Pod{b, a}},
			[]string{"osd.1"},
			"osd.1: pod osd-a: its container osd waits: ImagePullBackOff",
		},
		"by its key": {
			podspec.Classified{NotReady: []podspec.Pod{a, b}},
			[]string{"osd.7", "b:/dev/sdb"},
			"b:/dev/sdb: pod osd-b: its container osd waits: CrashLoopBackOff",
		},
		"no batch": {
			podspec.Classified{NotReady: []podspec.Pod{nowhere, a}},
			nil,
			"c:/dev/sdb: pod osd-c: it has no node: 0/3 nodes are available",
		},
		"it has no pod": {
			podspec.Classified{
				Missing: []podspec.OSD{b.OSD},
				Busy:    map[string]string{"b:/dev/sdb": "the pod x still has /dev/sdb"},
			},
			nil,
			"b:/dev/sdb: it has no pod, since the pod x still has /dev/sdb",
		},
		"it does not end": {
			podspec.Classified{NotReady: []podspec.Pod{b}, Terminating: []podspec.Pod{a}},
			[]string{"osd.1"},
			"osd.1: pod osd-a is still terminating",
		},
		"only Ceph misses it": {
			podspec.Classified{NotReady: []podspec.Pod{b}, Ready: []podspec.Pod{ready(pod("a", named("1"), plain))}},
			[]string{"osd.1"},
			"osd.1: pod osd-a is ready, but Ceph does not say that the OSD is up",
		},
		"Ceph misses one of them": {
			podspec.Classified{Ready: []podspec.Pod{ready(pod("a", named("1"), plain)), ready(pod("b", named("2"), plain))}},
			[]string{"osd.1", "osd.2"},
			"all of its pods are ready, but Ceph does not say that all of its OSDs are up",
		},
		"nothing is the matter": {podspec.Classified{UpToDate: []podspec.Pod{ready(pod("a", named("1"), plain))}}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, suspectOf(c.seen, c.batch).String()) })
	}
}
