package rookceph

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

func withMons(t *testing.T, storage instance.MonStorage) cluster {
	t.Helper()
	c := sized(3, 2, 1)
	c.topo.MonStorage, c.inst.Dir = storage, t.TempDir()
	if err := os.MkdirAll(c.path("keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.saveIdentity(c.newIdentity(time.Now())); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMonAddresses(t *testing.T) {
	for storage, want := range map[instance.MonStorage]string{
		instance.MonStorageNone:     "[v2:127.0.0.1:12100/0] 127.0.0.1:12100",
		instance.MonStorageHostPath: "[v2:127.130.0.10:3300/0,v1:127.130.0.10:6789/0] 127.130.0.10:6789",
		instance.MonStoragePVC:      "[v2:127.130.0.10:3300/0,v1:127.130.0.10:6789/0] 127.130.0.10:6789",
	} {
		m := withMons(t, storage).mons()[0]
		if got := m.addr() + " " + m.endpoint(); got != want {
			t.Errorf("%s: %s, want %s", storage, got, want)
		}
	}
}

// TestStoresAreWherePodsFindThem: made before there is a node or a volume, and in use after.
func TestStoresAreWherePodsFindThem(t *testing.T) {
	for storage, want := range map[instance.MonStorage]string{
		instance.MonStorageNone:     "ceph/mon-b",
		instance.MonStorageHostPath: "nodes/node-b/disk/var/lib/rook/mon-b/data",
		instance.MonStoragePVC:      "volumes/rook-ceph-mon-b/data",
	} {
		c := withMons(t, storage)
		m := c.mons()[1]
		for range 2 { // the second after one that was interrupted
			if err := os.RemoveAll(c.path("mon-b")); err != nil {
				t.Fatal(err)
			}
			if err := c.makeMonDir(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(c.path("mon-b", "made"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(c.inst.Path(want, "made")); err != nil {
			t.Errorf("%s: %v", storage, err)
		}
		if storage != instance.MonStoragePVC {
			continue
		}
		claim, volume := c.monClaim(m)
		zone := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
		if claim.Spec.VolumeName != volume.Name || volume.Spec.ClaimRef.Name != claim.Name || zone != "zone-y" ||
			volume.Spec.Local.Path != c.inst.Path("volumes/rook-ceph-mon-b") {
			t.Errorf("%+v\n%+v", claim.Spec, volume.Spec)
		}
	}
}

// TestMonsBelongToOthers: a lab that is continued makes what was not made before, and brings back no mon that has left.
func TestMonsBelongToOthers(t *testing.T) {
	c := withMons(t, instance.MonStoragePVC)
	client := fake.NewClientset()
	deploy := func() []string {
		t.Helper()
		mons, err := Deploy(t.Context(), client, c.inst, c.topo)
		if err != nil {
			t.Fatal(err)
		}
		return mons
	}
	exist := func() (names []string) {
		list, err := client.AppsV1().Deployments(Namespace).List(t.Context(),
			metav1.ListOptions{LabelSelector: "app=rook-ceph-mon"})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list.Items {
			names = append(names, d.Labels["mon"])
		}
		slices.Sort(names)
		return names
	}
	remove := func(name string) {
		t.Helper()
		err := client.AppsV1().Deployments(Namespace).Delete(t.Context(), "rook-ceph-mon-"+name, metav1.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := deploy(); !slices.Equal(got, []string{"a", "b", "c"}) || !slices.Equal(exist(), got) {
		t.Errorf("%v, %v", got, exist())
	}
	remove("c") // somebody's Deployment is gone, and the mon is still one of them
	if deploy(); !slices.Equal(exist(), []string{"a", "b", "c"}) {
		t.Error(exist())
	}

	endpoints, err := client.CoreV1().ConfigMaps(Namespace).Get(t.Context(), configMapEndpoints, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	endpoints.Data["data"] = "b=127.130.0.11:6789,c=127.130.0.12:6789,d=127.130.9.9:6789"
	if _, err := client.CoreV1().ConfigMaps(Namespace).Update(t.Context(), endpoints, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	remove("a")
	if got := deploy(); !slices.Equal(got, []string{"b", "c", "d"}) || !slices.Equal(exist(), []string{"b", "c"}) {
		t.Errorf("%v, %v", got, exist())
	}
	config, err := os.ReadFile(AdminConfig(c.inst))
	if err != nil || !strings.Contains(string(config),
		"\nmon_host = 127.130.0.11:6789,127.130.0.12:6789,127.130.9.9:6789\n") {
		t.Errorf("%v\n%s", err, config)
	}
}

func TestEndpointsWithoutAMonAreNotFollowed(t *testing.T) {
	c := withMons(t, instance.MonStorageNone)
	client := fake.NewClientset()
	if _, err := Deploy(t.Context(), client, c.inst, c.topo); err != nil {
		t.Fatal(err)
	}
	endpoints, err := client.CoreV1().ConfigMaps(Namespace).Get(t.Context(), configMapEndpoints, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(AdminConfig(c.inst))
	if err != nil || !strings.Contains(string(before), "\nmon_host = [v2:127.0.0.1:12100/0],") {
		t.Fatalf("%v\n%s", err, before)
	}
	endpoints.Data["data"] = ""
	if err := c.follow(endpoints); err == nil {
		t.Error("followed")
	}
	if after, err := os.ReadFile(AdminConfig(c.inst)); err != nil || string(after) != string(before) {
		t.Errorf("%v\n%s", err, after)
	}
}

// TestDaemonsTakeTheMonsFromWhereRookSays, when they start, and not from a file that nobody changes.
func TestDaemonsTakeTheMonsFromWhereRookSays(t *testing.T) {
	c := withMons(t, instance.MonStorageHostPath)
	for _, d := range c.daemons() {
		env := map[string]string{}
		for _, e := range c.container(d).Env {
			env[e.Name] = e.Value
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				env[e.Name] = e.ValueFrom.SecretKeyRef.Name + "/" + e.ValueFrom.SecretKeyRef.Key
			}
		}
		if env["ROOK_CEPH_MON_HOST"] != "rook-ceph-config/mon_host" || env["CEPH_ARGS"] != "-m $(ROOK_CEPH_MON_HOST)" {
			t.Errorf("%s: %v", d.name(), env)
		}
	}
	if config := c.config("F", "", podPlace()); strings.Contains(config, "mon_host") {
		t.Error(config)
	}
}
