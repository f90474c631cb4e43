package kube_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

var began = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func policy(namespace, name string, age time.Duration, mons string, osds map[string]string) v1alpha1.MaintenancePolicy {
	p := v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		CreationTimestamp: metav1.NewTime(began.Add(-age)),
	}}
	p.Spec.Ceph = &v1alpha1.CephSpec{}
	if mons != "" {
		p.Spec.Ceph.Connection.MonEndpoints = v1alpha1.KeyReference{Name: mons, Key: "data"}
	}
	if osds != nil {
		p.Spec.Ceph.OSDs.Selector = &metav1.LabelSelector{MatchLabels: osds}
	}
	return p
}

func TestPrecedence(t *testing.T) {
	ssd, hdd := map[string]string{"app": "rook-ceph-osd", "class": "ssd"}, map[string]string{"class": "hdd"}
	pods := []labels.Set{
		{"app": "rook-ceph-osd", "class": "ssd"},
		{"app": "rook-ceph-osd"},
		{"app": "other", "class": "hdd"},
	}
	me := policy("ceph", "me", time.Hour, "", nil)
	for name, c := range map[string]struct {
		other  v1alpha1.MaintenancePolicy
		reason string
	}{
		"older": {
			policy("ceph", "first", 2*time.Hour, "", nil),
			"MaintenancePolicy ceph/first was first (2026-03-01 01:00:00), and looks after the same storage cluster: both " +
				"find its mons in ConfigMap rook-ceph-mon-endpoints, key data; this one manages nothing. Delete one of the two",
		},
		"older, with the same pods": {
			policy("ceph", "first", 2*time.Hour, "mons", ssd),
			"MaintenancePolicy ceph/first was first (2026-03-01 01:00:00), and looks after the same storage cluster: both " +
				"select the pods with app=rook-ceph-osd,class=ssd; this one manages nothing. Delete one of the two",
		},
		"older, of other pods and mons": {
			policy("ceph", "first", 2*time.Hour, "mons", hdd),
			"",
		},
		"older, of another namespace, of which nothing else is known": {policy("other", "first", 2*time.Hour, "", nil), ""},
		"younger":                    {policy("ceph", "second", time.Minute, "", nil), ""},
		"of the same second, before": {policy("ceph", "a", time.Hour, "", nil), "MaintenancePolicy ceph/a was first"},
		"of the same second, after":  {policy("ceph", "z", time.Hour, "", nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := kube.Precedence(&me, []v1alpha1.MaintenancePolicy{c.other, me}, pods)
			assert.Equal(t, c.reason == "", got.OK)
			assert.Contains(t, got.Reason, c.reason)
		})
	}
}

// TestPrecedenceByFSID: policies of different namespaces that mean the same Ceph, as their statuses tell.
func TestPrecedenceByFSID(t *testing.T) {
	claiming := func(p v1alpha1.MaintenancePolicy, fsid string, claimed bool) v1alpha1.MaintenancePolicy {
		p.Status.Ceph = &v1alpha1.CephClusterStatus{FSID: fsid, Claimed: claimed}
		return p
	}
	me := claiming(policy("ceph", "me", time.Hour, "", nil), "f", true)
	older, younger := policy("zoo", "first", 2*time.Hour, "", nil), policy("zoo", "second", time.Minute, "", nil)
	for name, c := range map[string]struct {
		other         v1alpha1.MaintenancePolicy
		first, behind string
	}{
		"older, has not looked yet": {older, "", ""},
		"older":                     {claiming(older, "f", true), "zoo/first", ""},
		"older, stood aside":        {claiming(older, "f", false), "", ""},
		"older, of another Ceph":    {claiming(older, "g", true), "", ""},
		"younger":                   {claiming(younger, "f", true), "", "zoo/second"},
		"younger, stood aside":      {claiming(younger, "f", false), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			all := []v1alpha1.MaintenancePolicy{c.other, me}
			got, first := kube.Precedence(&me, all, nil)
			assert.Equal(t, c.first == "", got.OK)
			if c.first != "" {
				assert.Equal(t, c.first, first.String())
				assert.Contains(t, got.Reason, "MaintenancePolicy zoo/first was first")
			}
			behind := ""
			if key := kube.Waits(&me, all); key.Name != "" {
				behind = key.String()
			}
			assert.Equal(t, c.behind, behind)
		})
	}
}

// TestOneIsInCharge: of policies that mean the same storage cluster, exactly one is in charge, whichever asks.
func TestOneIsInCharge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching("[a-z]{1,3}"), 1, 6, rapid.ID).Draw(t, "names")
		var all []v1alpha1.MaintenancePolicy
		for _, name := range names {
			all = append(all, policy("ceph", name, time.Duration(rapid.IntRange(0, 2).Draw(t, "age"))*time.Second, "", nil))
		}
		charge := 0
		for i := range all {
			answer, first := kube.Precedence(&all[i], all, nil)
			if answer.OK {
				charge++
				continue
			}
			require.NotEqual(t, all[i].Name, first.Name)
		}
		require.Equal(t, 1, charge)
	})
}
