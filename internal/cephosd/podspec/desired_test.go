package podspec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
)

// read is a CephOSD named osds, in the namespace ceph, with the given spec and, unless that has one, a small template.
func read(t require.TestingT, spec string) podspec.Set {
	object := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte("spec: "+spec), &object))
	object["metadata"] = map[string]any{"namespace": "ceph", "name": "osds", "uid": "uid-of-osds"}
	if s := object["spec"].(map[string]any); s["podTemplate"] == nil {
		s["podTemplate"] = map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "osd", "image": "ceph:16"}}},
		}
	}
	set, err := podspec.Read(object)
	require.NoError(t, err)
	return set
}

func words(refused []*input.Error) (out []string) {
	for _, err := range refused {
		out = append(out, err.Error())
	}
	return out
}

func TestDesiredIsTheProduct(t *testing.T) {
	osds, refused := read(t, `
  storage:
    - hosts: [node-b, node-a]
      osds: [{data: /dev/sdc, db: /dev/nvme0n1p2}, {data: /dev/sdb, db: /dev/nvme0n1p1, wal: /dev/nvme0n1p3}]
    - hosts: [node-b]
      osds: [{data: /dev/sdd}]`).Desired()
	assert.Empty(t, words(refused))
	assert.Equal(t, []podspec.OSD{
		{Host: "node-a", Data: "/dev/sdb", DB: "/dev/nvme0n1p1", WAL: "/dev/nvme0n1p3"},
		{Host: "node-a", Data: "/dev/sdc", DB: "/dev/nvme0n1p2"},
		{Host: "node-b", Data: "/dev/sdb", DB: "/dev/nvme0n1p1", WAL: "/dev/nvme0n1p3"},
		{Host: "node-b", Data: "/dev/sdc", DB: "/dev/nvme0n1p2"},
		{Host: "node-b", Data: "/dev/sdd"},
	}, osds)
}

func TestNothingIsDesiredOfNothing(t *testing.T) {
	osds, refused := read(t, `{storage: []}`).Desired()
	assert.Empty(t, osds)
	assert.Empty(t, refused)
}

// A refusal names the field, its value, and what is allowed.
func TestDesiredRefuses(t *testing.T) {
	const one = `storage: [{hosts: [a], osds: [{data: /dev/sdb}]}]`
	for name, c := range map[string]struct{ spec, want string }{
		"no host": {
			`{storage: [{hosts: [], osds: [{data: x}]}]}`,
			`spec.storage[0].hosts: "": must name at least one host`,
		},
		"no OSD": {`{storage: [{hosts: [a], osds: []}]}`, `spec.storage[0].osds: "": must name at least one OSD`},
		"no device": {
			`{storage: [{hosts: [a], osds: [{db: x}]}]}`,
			`spec.storage[0].osds[0].data: "": must be the path of a device`,
		},
		"empty host": {
			`{storage: [{hosts: [""], osds: [{data: x}]}]}`,
			`spec.storage[0].hosts[0]: "": must be the value of a node's label kubernetes.io/hostname, at most 63 characters`,
		},
		"no such host": {
			`{storage: [{hosts: [a b], osds: [{data: x}]}]}`,
			`spec.storage[0].hosts[0]: "a b": must be the value of a node's label`,
		},
		"host twice": {
			`{storage: [{hosts: [a, a], osds: [{data: x}]}]}`,
			`spec.storage[0].hosts[1]: "a": must be named once in a list`,
		},
		"device twice": {
			`{storage: [{hosts: [a], osds: [{data: x}, {data: x}]}]}`,
			`spec.storage[0].osds[1].data: "x": must have one use on a host, but is spec.storage[0].osds[0].data of a, too`,
		},
		"device twice, elsewhere": {
			`{storage: [{hosts: [a, b], osds: [{data: x}]}, {hosts: [b, c], osds: [{data: v}, {data: x}]}]}`,
			`spec.storage[1].osds[1].data: "x": must have one use on a host, but is spec.storage[0].osds[0].data of b, too`,
		},
		"DB twice": {
			`{storage: [{hosts: [a], osds: [{data: x, db: z}, {data: v, db: z}]}]}`,
			`spec.storage[0].osds[1].db: "z": must have one use on a host, but is spec.storage[0].osds[0].db of a, too`,
		},
		"WAL of a DB": {
			`{storage: [{hosts: [a], osds: [{data: x, db: z}, {data: v, wal: z}]}]}`,
			`spec.storage[0].osds[1].wal: "z": must have one use on a host`,
		},
		"data is DB": {
			`{storage: [{hosts: [a], osds: [{data: x, db: x}]}]}`,
			`spec.storage[0].osds[0].db: "x": must have one use on a host, but is spec.storage[0].osds[0].data of a, too`,
		},
		"too many": {
			`{storage: [{hosts: [` + many("h%d", 1001) + `], osds: [` + many("{data: d%d}", 100) + `]}]}`,
			`spec.storage[0]: "100100": must be at most 100000 OSDs in all`,
		},
		"parallel": {
			`{maxParallel: -1, ` + one + `}`,
			`spec.maxParallel: "-1": must be at least 1, or 0 for as many as Ceph lets go`,
		},
		"policy":   {`{policy: a/b, ` + one + `}`, `spec.policy: "a/b": must be the name of a MaintenancePolicy`},
		"deletion": {`{deletionPolicy: Orphan, ` + one + `}`, `spec.deletionPolicy: "Orphan": must be Retain or Delete`},
		"pause": {
			`{pauseBetween: -1s, ` + one + `}`,
			`spec.pauseBetween: "-1s": must be between 0s and 168h, such as 5m`,
		},
		"soak": {
			`{canary: {soak: 200h}, ` + one + `}`,
			`spec.canary.soak: "200h0m0s": must be between 0s and 168h, such as 30m`,
		},
		"deadline": {
			`{progressDeadline: 1s, ` + one + `}`,
			`spec.progressDeadline: "1s": must be between 10s and 24h, such as 10m`,
		},
		"cron": {
			`{windows: [{schedule: "0 25 * * *", duration: 1h}], ` + one + `}`,
			`spec.windows[0].schedule: "0 25 * * *": must be the five fields of a crontab`,
		},
		"window": {
			`{windows: [{schedule: "0 2 * * *", duration: 1s}], ` + one + `}`,
			`spec.windows[0].duration: "1s": must be between 1m and 168h, such as 6h`,
		},
		"zone": {`{windows: [{schedule: "0 2 * * *", duration: 1h}, {schedule: "0 2 * * *", duration: 1h, timeZone: Mars/Olympus}], ` + one + `}`, `spec.windows[1].timeZone: "Mars/Olympus": must be a time zone of the IANA's`},
		"version": {
			`{podTemplate: {apiVersion: apps/v1, spec: {containers: [{name: x}]}}, ` + one + `}`,
			`spec.podTemplate.apiVersion: "apps/v1": must be v1, or left out`,
		},
		"kind": {
			`{podTemplate: {kind: ReplicaSet, spec: {containers: [{name: x}]}}, ` + one + `}`,
			`spec.podTemplate.kind: "ReplicaSet": must be Pod, or left out`,
		},
		"containers": {
			`{podTemplate: {spec: {containers: []}}, ` + one + `}`,
			`spec.podTemplate.spec.containers: "": must have at least one container, the OSD's`,
		},
		"restart": {
			`{podTemplate: {spec: {restartPolicy: OnFailure, containers: [{name: x}]}}, ` + one + `}`,
			`spec.podTemplate.spec.restartPolicy: "OnFailure": must be Always: nobody else starts an OSD again that crashed`,
		},
		"node": {
			`{podTemplate: {spec: {nodeName: a, containers: [{name: x}]}}, ` + one + `}`,
			`spec.podTemplate.spec.nodeName: "a": must be left out: spec.storage says on which hosts the pods run`,
		},
		"number": {`{podTemplate: {metadata: {labels: {ceph-osd-id: "1"}}, spec: {containers: [{name: x}]}}, ` + one +
			`}`, `spec.podTemplate.metadata.labels[ceph-osd-id]: "1": must be left out`},
	} {
		t.Run(name, func(t *testing.T) {
			_, refused := read(t, c.spec).Desired()
			require.Len(t, refused, 1, words(refused))
			assert.True(t, strings.HasPrefix(refused[0].Error(), c.want), refused[0].Error())
		})
	}
	t.Run("long name", func(t *testing.T) {
		set := read(t, `{`+one+`}`)
		set.Name = strings.Repeat("n", 56)
		_, refused := set.Desired()
		require.Len(t, refused, 1)
		assert.Contains(t, refused[0].Error(),
			"must have at most 55 characters: pods carry it in the value of a label, as CephOSD-<name>")
	})
}

// many is n values, with a comma between them.
func many(format string, n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(out, ", ")
}

// A list that is wrong in a thousand places is told in some, not in a status that the API server refuses.
func TestRefusalsAreNotEndless(t *testing.T) {
	_, refused := read(t, `{maxParallel: -1, storage: [{hosts: [`+many("h%d",
		100)+`], osds: [{data: x, db: x}, {data: x}]}]}`).Desired()
	assert.Len(t, refused, 64)
	assert.Equal(t, "spec.maxParallel", refused[0].Field)
}

func TestUnknownHosts(t *testing.T) {
	set := read(t, `{storage: [{hosts: [a, gone], osds: [{data: x}]}, {hosts: [gone, b], osds: [{data: v}]}]}`)
	_, refused := set.Desired()
	assert.Empty(t, refused, "the other hosts' OSDs must go on")
	unknown := set.UnknownHosts(sets.New("a", "b", "c"))
	assert.Equal(t, []string{
		"spec.storage[0].hosts[1]: \"gone\": must be a node: the value of its label kubernetes.io/hostname; `kubectl get " +
			"nodes -L kubernetes.io/hostname` lists them",
		"spec.storage[1].hosts[0]: \"gone\": must be a node: the value of its label kubernetes.io/hostname; `kubectl get " +
			"nodes -L kubernetes.io/hostname` lists them",
	}, words(unknown))
}

// What is desired never gives a device to two, nor two pods the same name.
func TestDesiredNeverSharesADevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host, device := rapid.SampledFrom([]string{"a", "b", "c"}),
			rapid.SampledFrom([]string{"/dev/u", "/dev/v", "/dev/w", "/dev/x", "/dev/y", "/dev/z"})
		var storage []string
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			hosts := rapid.SliceOfN(host, 1, 3).Draw(t, "hosts")
			var osds []string
			for range rapid.IntRange(1, 3).Draw(t, "osds") {
				o := "{data: " + device.Draw(t, "data")
				if rapid.Bool().Draw(t, "with DB") {
					o += ", db: " + device.Draw(t, "db")
				}
				osds = append(osds, o+"}")
			}
			storage = append(storage, fmt.Sprintf("{hosts: [%s], osds: [%s]}", strings.Join(hosts, ", "),
				strings.Join(osds, ", ")))
		}
		osds, refused := read(t, "{storage: ["+strings.Join(storage, ", ")+"]}").Desired()
		uses, names, keys := map[string]int{}, map[string]int{}, []string{}
		for _, o := range osds {
			for _, d := range []string{o.Data, o.DB} {
				if d != "" {
					uses[o.Host+" "+d]++
				}
			}
			names[podspec.PodName(o)]++
			keys = append(keys, o.Key())
		}
		for use, n := range uses {
			if n > 1 {
				t.Fatalf("%s has %d users: %v", use, n, osds)
			}
		}
		if len(names) != len(osds) || !slices.IsSorted(keys) {
			t.Fatalf("%v", osds)
		}
		if len(storage) > 0 && len(osds) == 0 && len(refused) == 0 {
			t.Fatal("nothing is desired, and nothing refused")
		}
	})
}
