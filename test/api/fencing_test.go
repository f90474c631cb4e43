package api

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/machines"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// TestFencingInAPolicy: what makes no sense is refused, with the field and what is allowed.
func TestFencingInAPolicy(t *testing.T) {
	long := strings.Repeat("n", 64)
	for _, test := range []struct{ name, fencing, want string }{
		{"fencing-none", `{}`, ""},
		{"fencing-capi", `{api: ClusterAPI, namespace: machines}`, ""},
		{"fencing-capi-skip", `{api: ClusterAPI, namespace: machines, hold: SkipRemediation}`, ""},
		{"fencing-openshift", `{api: OpenShift, namespace: openshift-machine-api}`, ""},
		{"fencing-mdb", `{api: MachineDisruptionBudget, namespace: openshift-machine-api}`, ""},
		{"fencing-nodes", `{api: NodeHealthCheck}`, ""},
		{long, `{api: ClusterAPI, namespace: machines}`, ""},
		{"fencing-other", `{api: Karpenter}`, `supported values: "None", "MachineDisruptionBudget", "ClusterAPI"`},
		{"fencing-no-namespace", `{api: ClusterAPI}`, "namespace is that of the Machines: required with api"},
		{"fencing-nodes-namespace", `{api: NodeHealthCheck, namespace: x}`, "not allowed with None and NodeHealthCheck"},
		{"fencing-none-namespace", `{namespace: x}`, "not allowed with None and NodeHealthCheck"},
		{"fencing-hold", `{api: OpenShift, namespace: x, hold: Hooks}`, "hold is allowed with api ClusterAPI only"},
		{"fencing-hold-other", `{api: ClusterAPI, namespace: x, hold: Pray}`, `supported values: "Hooks", "SkipRemediation"`},
		{long + "x", `{api: MachineDisruptionBudget, namespace: x}`, "the name is part of a label of Machines"},
	} {
		err := server.Create(t.Context(), policy(t, test.name, `{ceph: {}, fencing: `+test.fencing+`}`))
		if test.want == "" {
			require.NoError(t, err, test.name)
			continue
		}
		require.ErrorContains(t, err, test.want, test.name)
	}
	var got v1alpha1.MaintenancePolicy
	require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "fencing-none"}, &got))
	require.Equal(t, v1alpha1.FencingSpec{API: v1alpha1.FencingNone}, got.Spec.Fencing)
}

// fencingAPI is one API, and how a Machine of it looks that is held by default/one.
type fencingAPI struct {
	spec    v1alpha1.FencingSpec
	machine schema.GroupVersionKind
	held    string // YAML of what is there besides
}

var fencingAPIs = []fencingAPI{
	{
		v1alpha1.FencingSpec{API: v1alpha1.FencingClusterAPI, Namespace: "machines"},
		schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Machine"},
		`metadata: {annotations: {
			pre-drain.delete.hook.machine.cluster.x-k8s.io/lockkeeper.default.one: default/one,
			pre-terminate.delete.hook.machine.cluster.x-k8s.io/lockkeeper.default.one: default/one}}`,
	},
	{
		v1alpha1.FencingSpec{
			API: v1alpha1.FencingClusterAPI, Namespace: "machines", Hold: v1alpha1.FencingHoldSkipRemediation,
		},
		schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Machine"},
		`metadata: {annotations: {
			cluster.x-k8s.io/skip-remediation: "", fencing.lockkeeper.io/lockkeeper.default.one: default/one}}`,
	},
	{
		v1alpha1.FencingSpec{API: v1alpha1.FencingOpenShift, Namespace: "machines"},
		schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "Machine"},
		`spec: {lifecycleHooks: {
			preDrain: [{name: lockkeeper.default.one, owner: default/one}],
			preTerminate: [{name: lockkeeper.default.one, owner: default/one}]}}`,
	},
	{
		v1alpha1.FencingSpec{API: v1alpha1.FencingMachineDisruptionBudget, Namespace: "machines"},
		schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "Machine"},
		`metadata: {labels: {fencegroup.rook.io/one: default}}`,
	},
	{
		v1alpha1.FencingSpec{API: v1alpha1.FencingNodeHealthCheck},
		schema.GroupVersionKind{Version: "v1", Kind: "Node"},
		`metadata: {labels: {remediation.medik8s.io/exclude-from-remediation: "true"},
			annotations: {fencing.lockkeeper.io/lockkeeper.default.one: default/one}}`,
	},
}

// TestHolds sets and takes away holds in each API, with the rights of the worker: what they look like, that they are
// written once, that two policies do not take away each other's, and that nothing is left behind.
func TestHolds(t *testing.T) {
	prepareFencing(t)
	for i, api := range fencingAPIs {
		name := strings.ToLower(string(api.spec.API)) + string(rune('a'+i))
		t.Run(name, func(t *testing.T) {
			one, two := holder(t, "one", api.spec), holder(t, "two", api.spec)
			makeMachine(t, api, name)
			before := readMachine(t, api, name)
			m := findMachine(t, one, name)
			require.False(t, m.Held)
			require.Equal(t, name, m.Node)
			require.Equal(t, string(before.GetUID()), m.UID)

			require.NoError(t, one.Set(t.Context(), m))
			require.True(t, findMachine(t, one, name).Held)
			require.False(t, findMachine(t, two, name).Held, "another policy's hold is not ours")
			want := before.DeepCopy()
			extra := map[string]any{}
			require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(api.held, "\t", " ")), &extra))
			merge(want.Object, extra)
			after := readMachine(t, api, name)
			require.Equal(t, plain(want), plain(after))

			require.NoError(t, one.Set(t.Context(), m))
			require.Equal(t, after.GetResourceVersion(), readMachine(t, api, name).GetResourceVersion(), "written again")

			require.NoError(t, two.Set(t.Context(), m))
			require.NoError(t, one.Remove(t.Context(), m))
			require.True(t, findMachine(t, two, name).Held)
			require.False(t, findMachine(t, one, name).Held)
			require.NoError(t, two.Remove(t.Context(), m))
			require.NoError(t, two.Remove(t.Context(), m))
			require.Equal(t, plain(before), plain(readMachine(t, api, name)))

			// Another of the same name, and none.
			m.UID = "another"
			require.NoError(t, one.Set(t.Context(), m))
			require.False(t, findMachine(t, one, name).Held)
			m.Name = "none"
			require.NoError(t, one.Set(t.Context(), m))
			require.NoError(t, one.Remove(t.Context(), m))
		})
	}
}

// TestHoldsOfOthers: what equals ours and was there before stays.
func TestHoldsOfOthers(t *testing.T) {
	prepareFencing(t)
	nodes := fencingAPIs[len(fencingAPIs)-1]
	makeMachine(t, nodes, "excluded")
	node := readMachine(t, nodes, "excluded")
	node.SetLabels(map[string]string{"remediation.medik8s.io/exclude-from-remediation": "true"})
	require.NoError(t, server.Update(t.Context(), node))
	one := holder(t, "one", nodes.spec)
	m := findMachine(t, one, "excluded")
	require.True(t, m.Held)
	require.NoError(t, one.Remove(t.Context(), m))
	require.True(t, findMachine(t, one, "excluded").Held, "a person's label is gone")

	// The label of a fence group belongs to one of two policies with the same name.
	budgets := fencingAPIs[3]
	makeMachine(t, budgets, "twice")
	labelled := readMachine(t, budgets, "twice")
	labelled.SetLabels(map[string]string{"fencegroup.rook.io/one": "elsewhere"})
	require.NoError(t, server.Update(t.Context(), labelled))
	one = holder(t, "one", budgets.spec)
	m = findMachine(t, one, "twice")
	require.False(t, m.Held)
	require.ErrorContains(t, one.Set(t.Context(), m), "give one of the two policies another name")
	require.NoError(t, one.Remove(t.Context(), m))
	require.Equal(t, "elsewhere", readMachine(t, budgets, "twice").GetLabels()["fencegroup.rook.io/one"])

	// Hooks of others in the same list.
	openShift := fencingAPIs[2]
	makeMachine(t, openShift, "hooked")
	hooked := readMachine(t, openShift, "hooked")
	require.NoError(t, unstructured.SetNestedSlice(hooked.Object, []any{
		map[string]any{"name": "theirs", "owner": "them"},
	}, "spec", "lifecycleHooks", "preDrain"))
	require.NoError(t, server.Update(t.Context(), hooked))
	one = holder(t, "one", openShift.spec)
	m = findMachine(t, one, "hooked")
	require.NoError(t, one.Set(t.Context(), m))
	require.NoError(t, one.Remove(t.Context(), m))
	hooked = readMachine(t, openShift, "hooked")
	left, _, _ := unstructured.NestedSlice(hooked.Object, "spec", "lifecycleHooks", "preDrain")
	require.Len(t, left, 1)
}

func check(kind, status string, timeout time.Duration) fencing.Check {
	return fencing.Check{Type: kind, Status: status, Timeout: timeout}
}

func TestHealthChecks(t *testing.T) {
	prepareFencing(t)
	for _, test := range []struct {
		spec  v1alpha1.FencingSpec
		check string
		want  machines.HealthCheck
	}{
		{
			fencingAPIs[0].spec, `{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineHealthCheck, spec: {
				selector: {matchLabels: {pool: workers}},
				checks: {unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 300}]},
				remediation: {triggerIf: {unhealthyLessThanOrEqualTo: "40%"}, templateRef: {kind: T, name: t}}}}`,
			machines.HealthCheck{
				Checks: []fencing.Check{check("Ready", "Unknown", 5*time.Minute)}, Limit: "40%", Template: true,
			},
		},
		{
			fencingAPIs[2].spec, `{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck,
				metadata: {annotations: {cluster.x-k8s.io/paused: "",
					machine.openshift.io/remediation-strategy: external-baremetal}}, spec: {
				selector: {matchLabels: {pool: workers}}, maxUnhealthy: 2,
				unhealthyConditions: [{type: Ready, status: "False", timeout: 300s}, {type: Disk, status: "True", timeout: 1h0m0s}]}}`,
			machines.HealthCheck{Checks: []fencing.Check{
				check("Ready", "False", 5*time.Minute), check("Disk", "True", time.Hour),
			}, Limit: "2", Paused: true, Template: true},
		},
		{
			fencingAPIs[4].spec, `{apiVersion: remediation.medik8s.io/v1alpha1, kind: NodeHealthCheck, spec: {
				selector: {matchExpressions: [{key: pool, operator: In, values: [workers]}]}, pauseRequests: [upgrade],
				unhealthyConditions: [{type: Ready, status: Unknown, duration: 300s}], remediationTemplate: {name: t}}}`,
			machines.HealthCheck{
				Checks: []fencing.Check{check("Ready", "Unknown", 5*time.Minute)}, Template: true, Paused: true,
			},
		},
	} {
		h := holder(t, "one", test.spec)
		o := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(test.check, "\t", " ")), &o.Object))
		o.SetName("check")
		o.SetNamespace(test.spec.Namespace)
		require.NoError(t, server.Create(t.Context(), o))
		checks, err := h.HealthChecks(t.Context())
		require.NoError(t, err)
		require.Len(t, checks, 1)
		require.True(t, checks[0].Selects(map[string]string{"pool": "workers"}))
		require.False(t, checks[0].Selects(map[string]string{"pool": "masters"}))
		test.want.Name = "check"
		require.EqualExportedValues(t, test.want, checks[0])

		// One that cannot be read may select anybody.
		require.NoError(t, unstructured.SetNestedSlice(o.Object, []any{
			map[string]any{"key": "pool", "operator": "Sometimes"},
		}, "spec", "selector", "matchExpressions"))
		require.NoError(t, server.Update(t.Context(), o))
		_, err = h.HealthChecks(t.Context())
		require.ErrorContains(t, err, "HealthCheck check: spec.selector")
		require.NoError(t, server.Delete(t.Context(), o))
	}
}

func TestMachineDisruptionBudget(t *testing.T) {
	prepareFencing(t)
	kind := schema.GroupVersionKind{
		Group: "healthchecking.openshift.io", Version: "v1alpha1", Kind: "MachineDisruptionBudget",
	}
	one := holder(t, "one", fencingAPIs[3].spec)
	read := func(name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)
		require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: "machines", Name: name}, o))
		return o
	}
	require.NoError(t, one.SetBudget(t.Context(), 1))
	made := read("one")
	require.Equal(t, map[string]any{
		"maxUnavailable": int64(1),
		"selector":       map[string]any{"matchLabels": map[string]any{"fencegroup.rook.io/one": "default"}},
	}, made.Object["spec"])
	require.NoError(t, one.SetBudget(t.Context(), 1))
	require.Equal(t, made.GetResourceVersion(), read("one").GetResourceVersion(), "written again")
	require.NoError(t, one.SetBudget(t.Context(), 0))
	n, _, _ := unstructured.NestedInt64(read("one").Object, "spec", "maxUnavailable")
	require.Zero(t, n)

	// Somebody adds a field that would count together with ours.
	edited := read("one")
	require.NoError(t, unstructured.SetNestedField(edited.Object, int64(1), "spec", "minAvailable"))
	require.NoError(t, server.Update(t.Context(), edited))
	require.NoError(t, one.SetBudget(t.Context(), 0))
	require.NotContains(t, read("one").Object["spec"], "minAvailable")

	// A health check that fences nodes that are ready has it say that more are to be healthy than there are.
	says := func(most int, never bool) {
		t.Helper()
		b, err := one.Budget(t.Context())
		require.NoError(t, err)
		require.Equal(t, fencing.MachineBudget{Max: &most, Never: never}, b)
	}
	says(0, false)
	check := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector": map[string]any{}, "unhealthyConditions": []any{
			map[string]any{"type": "Ready", "status": "Unknown", "timeout": "5m"},
			map[string]any{"type": "KernelDeadlock", "status": "True", "timeout": "5m"},
		},
	}}}
	check.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "machine.openshift.io", Version: "v1beta1", Kind: "MachineHealthCheck",
	})
	check.SetNamespace("machines")
	check.SetName("deadlocks")
	require.NoError(t, server.Create(t.Context(), check))
	says(-1, true)
	require.NoError(t, one.SetBudget(t.Context(), 1), "decided before the health check was seen")
	says(0, true)
	spec := read("one").Object["spec"]
	require.NotContains(t, spec, "maxUnavailable")
	require.Equal(t, int64(math.MaxInt32), spec.(map[string]any)["minAvailable"])
	require.NoError(t, server.Delete(t.Context(), check))
	says(-1, false)
	require.NoError(t, one.SetBudget(t.Context(), 1))
	says(1, false)

	// Those of others are left alone.
	makeRule(t, kind, "two", map[string]any{"selector": map[string]any{}})
	two := holder(t, "two", fencingAPIs[3].spec)
	require.ErrorContains(t, two.SetBudget(t.Context(), 1), "MachineDisruptionBudget machines/two is not ours")
	require.Error(t, two.RemoveBudget(t.Context()))

	require.NoError(t, one.RemoveBudget(t.Context()))
	require.NoError(t, one.RemoveBudget(t.Context()))
}

// prepareFencing installs the APIs, after lockkeeper has asked for them, and gives the worker its rights.
func prepareFencing(t *testing.T) {
	t.Helper()
	for _, api := range fencingAPIs {
		h := holder(t, "one", api.spec)
		if _, err := h.HealthChecks(t.Context()); err != nil {
			require.ErrorIs(t, err, machines.ErrNotServed)
			require.ErrorContains(t, err, "spec.fencing.api "+string(api.spec.API))
		}
	}
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "machines"}})
	apply(t, filepath.Join("testdata", "fencing-crds.yaml"), "")
	apply(t, filepath.Join(*root, "deploy", "rbac.yaml"), "")
	apply(t, filepath.Join(*root, "deploy", "fencing-namespace.yaml"), "machines")
	apply(t, filepath.Join(*root, "deploy", "fencing-nodes.yaml"), "")
	for _, api := range fencingAPIs {
		h := holder(t, "one", api.spec)
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			_, err := h.Machines(t.Context())
			assert.NoError(c, err)
			_, err = h.HealthChecks(t.Context())
			assert.NoError(c, err)
		}, apiserver.Patience, 50*time.Millisecond)
	}
}

func holder(t *testing.T, name string, spec v1alpha1.FencingSpec) *machines.Holder {
	t.Helper()
	worker, err := client.New(asAccount(config, "lockkeeper-worker"), client.Options{Scheme: kube.Scheme})
	require.NoError(t, err)
	h, err := machines.For(worker, storage.ClusterKey{Namespace: "default", Name: name}, spec)
	require.NoError(t, err)
	return h
}

// makeMachine makes a Machine whose node has its own name, or a Node.
func makeMachine(t *testing.T, api fencingAPI, name string) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(api.machine)
	o.SetNamespace(api.spec.Namespace)
	o.SetName(name)
	o.SetAnnotations(map[string]string{"before": "us"})
	if api.machine.Kind == "Machine" {
		o.Object["spec"] = map[string]any{"providerID": name}
		o.Object["status"] = map[string]any{"nodeRef": map[string]any{"name": name}}
	}
	require.NoError(t, server.Create(t.Context(), o))
	t.Cleanup(func() { _ = server.Delete(t.Context(), o) })
}

func readMachine(t *testing.T, api fencingAPI, name string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(api.machine)
	require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: api.spec.Namespace, Name: name}, o))
	return o
}

// makeRule makes what fences, or a budget of Machines: in their namespace, where there is one.
func makeRule(t *testing.T, kind schema.GroupVersionKind, name string, spec map[string]any) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kind)
	o.SetName(name)
	if kind.Kind != "NodeHealthCheck" {
		o.SetNamespace("machines")
	}
	require.NoError(t, server.Create(t.Context(), o))
	t.Cleanup(func() { _ = server.Delete(context.Background(), o) })
}

func listed(t *testing.T, api fencingAPI) []fencing.Machine {
	t.Helper()
	all, err := holder(t, "one", api.spec).Machines(t.Context())
	require.NoError(t, err)
	return all
}

func findMachine(t *testing.T, h *machines.Holder, name string) fencing.Machine {
	t.Helper()
	all, err := h.Machines(t.Context())
	require.NoError(t, err)
	for _, m := range all {
		if m.Name == name {
			return m
		}
	}
	require.Fail(t, "no such Machine", name)
	return fencing.Machine{}
}

// plain is an object without what every write changes, and without empty fields.
func plain(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	for _, field := range []string{"resourceVersion", "managedFields", "generation"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	prune(o.Object)
	return o.Object
}

func prune(m map[string]any) {
	for k, v := range m {
		if inner, ok := v.(map[string]any); ok {
			if prune(inner); len(inner) == 0 {
				delete(m, k)
			}
		}
	}
}

func merge(into, from map[string]any) {
	for k, v := range from {
		inner, ok := v.(map[string]any)
		if there, is := into[k].(map[string]any); ok && is {
			merge(there, inner)
		} else {
			into[k] = v
		}
	}
}

// TestExamine: what would keep Machines from being held, or from ever being fenced, is named.
func TestExamine(t *testing.T) {
	prepareFencing(t)
	capi := fencingAPIs[0]
	p := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
	examine := func(spec v1alpha1.FencingSpec, nodes ...string) (broken, odd []string) {
		t.Helper()
		p.Spec.Fencing = spec
		worker, err := client.New(asAccount(config, "lockkeeper-worker"), client.Options{Scheme: kube.Scheme})
		require.NoError(t, err)
		problems, err := machines.Examine(t.Context(), worker, p, nodes)
		require.NoError(t, err)
		for _, x := range problems {
			require.NotEmpty(t, x.Remedy)
			if x.Broken {
				broken = append(broken, x.Message)
			} else {
				odd = append(odd, x.Message)
			}
		}
		return broken, odd
	}
	broken, odd := examine(v1alpha1.FencingSpec{API: v1alpha1.FencingNone}, "m-0")
	require.Empty(t, broken)
	require.Empty(t, odd)

	// Three Machines with OSDs and one without, all under one health check.
	for _, name := range []string{"m-0", "m-1", "m-2", "m-3"} {
		makeMachine(t, capi, name)
		o := readMachine(t, capi, name)
		o.SetLabels(map[string]string{"pool": "workers"})
		require.NoError(t, server.Update(t.Context(), o))
	}
	nodes := []string{"m-0", "m-1", "m-2"}
	healthCheck := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector":    map[string]any{"matchLabels": map[string]any{"pool": "workers"}},
		"remediation": map[string]any{"triggerIf": map[string]any{"unhealthyLessThanOrEqualTo": "40%"}},
	}}}
	healthCheck.SetGroupVersionKind(capi.machine.GroupVersion().WithKind("MachineHealthCheck"))
	healthCheck.SetNamespace("machines")
	healthCheck.SetName("workers")
	require.NoError(t, server.Create(t.Context(), healthCheck))
	t.Cleanup(func() { _ = server.Delete(t.Context(), healthCheck) })

	broken, odd = examine(capi.spec, append(nodes, "node-x")...)
	require.Empty(t, broken)
	require.Len(t, odd, 2)
	require.Contains(t, odd[0], "1 of 4 nodes with OSDs have no Machine in the namespace machines, node-x for one")
	require.Contains(t, odd[1],
		"MachineHealthCheck workers selects 3 Machines with OSDs and 1 without, with one limit of 40%")

	// With skip-remediation it counts one that is released and one that is not held, and 40 % of 2 are none.
	broken, _ = examine(fencingAPIs[1].spec, nodes...)
	require.Len(t, broken, 1)
	require.Contains(t, broken[0], "acts on up to 40% unhealthy Machines of 4, of which it counts 2")
	require.Contains(t, broken[0], "it never acts on one")

	require.NoError(t, unstructured.SetNestedField(healthCheck.Object, "x", "spec", "remediation", "templateRef", "name"))
	require.NoError(t, unstructured.SetNestedField(healthCheck.Object, "0", "spec", "remediation", "triggerIf",
		"unhealthyLessThanOrEqualTo"))
	require.NoError(t, server.Update(t.Context(), healthCheck))
	broken, _ = examine(capi.spec, nodes...)
	require.Len(t, broken, 2)
	require.Contains(t, broken[0], "has a remediation template")
	require.Contains(t, broken[1], "acts on up to 0 unhealthy Machines of 4: it never acts on one")

	// The keeper says the same in the status of the policy.
	odd = machines.Fencer{Client: server}.Odd(t.Context(), storage.ClusterKey{Namespace: "default", Name: "one"},
		storage.Fencing{API: string(capi.spec.API), Namespace: capi.spec.Namespace}, listed(t, capi))(nodes)
	require.Equal(t, broken, odd[:2])
	require.Len(t, odd, 3)

	// A NodeHealthCheck is asked in the same way, of nodes.
	node := fencingAPIs[4]
	for _, name := range nodes {
		makeMachine(t, node, name)
	}
	makeRule(t, schema.GroupVersionKind{Group: "remediation.medik8s.io", Version: "v1alpha1", Kind: "NodeHealthCheck"},
		"workers", map[string]any{"maxUnhealthy": "0%"})
	broken, _ = examine(node.spec, nodes...)
	require.Len(t, broken, 1)
	require.Regexp(t, "NodeHealthCheck workers acts on up to 0% unhealthy Nodes of .*: it never acts on one", broken[0])

	// Whoever fences asks one budget of a Machine, and it may be somebody else's.
	budgets := fencingAPIs[3]
	for _, name := range nodes {
		makeMachine(t, budgets, name)
	}
	makeRule(t, schema.GroupVersionKind{
		Group: "healthchecking.openshift.io", Version: "v1alpha1", Kind: "MachineDisruptionBudget",
	}, "theirs", map[string]any{"selector": map[string]any{}})
	broken, _ = examine(budgets.spec, nodes...)
	require.Equal(t, []string{
		"MachineDisruptionBudget theirs selects Machines with OSDs, too, and fencing asks only one budget of a Machine",
	}, broken)

	broken, _ = examine(v1alpha1.FencingSpec{API: "Karpenter"}, nodes...)
	require.Len(t, broken, 1)
	require.Contains(t, broken[0], `spec.fencing.api "Karpenter": allowed are`)
}
