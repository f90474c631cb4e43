package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/auditlog"
)

// This file compares the rights in deploy/ with those that lockkeeper used, by the API server's audit log.

// grant is one verb on one kind of object that an account may do, or did.
type grant struct {
	account, verb, resource, name string // resource: "pods/eviction", "deployments.apps"; name "": any
	// bound: in the namespace of a storage cluster, or of lockkeeper, only. Otherwise in the whole cluster.
	bound bool
}

func (g grant) String() string {
	s := fmt.Sprintf("%s: %s %s", g.account, g.verb, g.resource)
	if g.name != "" {
		s += " " + g.name
	}
	if g.bound {
		s += " (in a namespace)"
	}
	return s
}

// neverUsed are grants that no scenario needs, and why they are there.
var neverUsed = map[string]string{
	"update maintenancepolicies/finalizers.lockkeeper.io": "no request of its own: asked " +
		"for where OwnerReferencesPermissionEnforcement is on",
	"update cephosds/finalizers.ceph.elemental.net": "no request of its own: asked " +
		"for where OwnerReferencesPermissionEnforcement is on",
	"get configmaps lockkeeper-mon-endpoints": "for clusters that Rook does not " +
		"run; the lab has Rook's ConfigMap",
	"list customresourcedefinitions.apiextensions.k8s.io cephosds.ceph.elemental.net": "for clusters to which the kind " +
		"CephOSD comes later",
	"watch customresourcedefinitions.apiextensions.k8s.io cephosds.ceph.elemental.net": "for clusters to which the kind " +
		"CephOSD comes later",
	"patch maintenancepolicies/status.lockkeeper.io": "the worker's: the status is " +
		"confirmed after five minutes at rest",
	"get nodeclaims.karpenter.sh": "for nodes of Karpenter: test/karpenter has them",
	"get endpointslices.discovery.k8s.io kubernetes": "where deletions are guarded; the lab's API server announces no " +
		"address",
	"get namespaces":      "asked when a policy is deleted, to tell whether its namespace goes, too",
	"get daemonsets.apps": "kubectl's drain asks for the DaemonSet of a pod; not every lab has one",
	"create events": "the watcher's: of a spec that makes no sense only; the API server refuses most of " +
		"them before",
	"create events.events.k8s.io": "the watcher's: of a spec that makes no sense only; the API server refuses most of " +
		"them before",
	"patch events":               "the watcher's: an event of it that comes again",
	"patch events.events.k8s.io": "the watcher's: an event of it that comes again",
}

// used collects what lockkeeper's accounts asked for, in all labs.
var used = struct {
	sync.Mutex
	requests  map[grant]bool // with the name, and bound when it was in a namespace
	refused   map[grant]bool
	scenarios int
}{requests: map[grant]bool{}, refused: map[grant]bool{}}

// collectRights reads the audit log of a lab that is about to end.
func (w *world) collectRights() error {
	path := w.env[auditlog.Variable]
	if path == "" {
		return nil // it never came up
	}
	time.Sleep(auditlog.Delay)
	used.Lock()
	defer used.Unlock()
	return auditlog.ReadFiles(path, func(e auditlog.Event) { noteRight(e, used.requests, used.refused) })
}

// noteRight takes down what one of our accounts asked for, and was allowed or refused.
func noteRight(e auditlog.Event, requests, refused map[grant]bool) {
	account, ours := strings.CutPrefix(e.User.Username, "system:serviceaccount:"+systemNamespace+":")
	if !ours || e.ObjectRef == (auditlog.Object{}) {
		return
	}
	g := grant{account: account, verb: e.Verb, resource: resourceName(e.ObjectRef.Resource, e.ObjectRef.Subresource,
		e.ObjectRef.APIGroup), name: e.ObjectRef.Name, bound: e.ObjectRef.Namespace != ""}
	if slices.Contains([]string{"subjectaccessreviews", "selfsubjectaccessreviews"}, e.ObjectRef.Resource) {
		return // everybody may ask about himself
	}
	if e.Annotations["authorization.k8s.io/decision"] == "forbid" {
		refused[g] = true
		return
	}
	// Which of its rights allowed it: one that is bound in a namespace is not used where the whole cluster's does it.
	g.bound = !strings.Contains(e.Annotations["authorization.k8s.io/reason"], "ClusterRoleBinding")
	requests[g] = true
}

func resourceName(resource, subresource, group string) string {
	if subresource != "" {
		resource += "/" + subresource
	}
	if group != "" {
		resource += "." + group
	}
	return resource
}

// granted are all rights in deploy/.
func granted(t *testing.T) (out []grant) {
	t.Helper()
	roles, bindings := map[string][]rbacv1.PolicyRule{}, []kube.Binding{}
	files, err := filepath.Glob(filepath.Join(*root, "deploy", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("deploy: %v", err)
	}
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "storage-namespace-longhorn") {
			continue // for a Longhorn, which these labs have not: test/longhorn plays with these rights
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, b, err := kube.ReadRBAC(text)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for name, rules := range r {
			roles[name] = rules
		}
		for i := range b {
			if strings.HasPrefix(filepath.Base(file), "storage-namespace") && !b[i].Everywhere {
				b[i].Namespace = cephNamespace
			}
			if filepath.Base(file) == "fencing-namespace.yaml" {
				b[i].Namespace = machinesNamespace
			}
		}
		bindings = append(bindings, b...)
	}
	for _, b := range bindings {
		for _, rule := range roles[b.Role] {
			for _, r := range kube.RightsOf(rule, b.Namespace) {
				out = append(out, grant{
					account: b.Account, verb: r.Verb,
					resource: resourceName(r.Resource, r.Subresource, r.Group), name: r.Name, bound: b.Namespace != "",
				})
			}
		}
	}
	return out
}

// notGranted are requests that were refused and that nothing in deploy/ allows. An API server that has just started
// refuses for a moment what it has not read yet, and scenarios kill it.
func notGranted(all []grant, refused map[grant]bool) (out []string) {
	for r := range refused {
		if !slices.ContainsFunc(all, func(g grant) bool {
			return g.account == r.account && g.verb == r.verb && g.resource == r.resource &&
				(g.name == "" || g.name == r.name) && (!g.bound || r.bound)
		}) {
			out = append(out, r.String())
		}
	}
	slices.Sort(out)
	return out
}

// notInTheLab tells whether a resource is of an API that fences nodes and whose controllers cannot be had for the lab.
func notInTheLab(resource string) bool {
	return slices.ContainsFunc([]string{
		".machine.openshift.io", ".healthchecking.openshift.io", ".remediation.medik8s.io",
	}, func(group string) bool { return strings.HasSuffix(resource, group) })
}

// unused are grants of which no request made use, but for those that have a reason to be there all the same.
func unused(all []grant, requests map[grant]bool) (out []string) {
	for _, g := range all {
		covered := false
		for r := range requests {
			// A watcher's list comes as a watch with what there is at first; with older API servers as a list.
			same := r.verb == g.verb || g.verb == "list" && r.verb == "watch"
			covered = covered || r.account == g.account && same && r.resource == g.resource && r.bound == g.bound &&
				(g.name == "" || r.name == g.name)
		}
		key := g.verb + " " + g.resource
		if g.name != "" {
			key += " " + g.name
		}
		if _, excused := neverUsed[key]; !covered && !excused && !notInTheLab(g.resource) {
			out = append(out, g.String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// compareRights fails when lockkeeper asked for what it may not, in whatever scenario; and, when all were run, when it
// may do what it never did.
func compareRights(t *testing.T, complete bool) {
	t.Helper()
	used.Lock()
	defer used.Unlock()
	all := granted(t)
	for _, what := range notGranted(all, used.refused) {
		t.Errorf("used and not granted in deploy/: %s", what)
	}
	never := unused(all, used.requests)
	if !complete {
		t.Logf("of the rights in deploy/ these scenarios did not use: %s", strings.Join(never, "; "))
		return
	}
	for _, what := range never {
		t.Errorf("granted in deploy/ and never used: %s", what)
	}
}

// TestNoteRight: of two requests one was refused.
func TestNoteRight(t *testing.T) {
	const line = `{"user":{"username":"system:serviceaccount:lockkeeper-system:test"},"verb":"%s","objectRef":{"resource":"pods","subresource":"eviction","namespace":"a","name":"b"},` +
		`"annotations":{"authorization.k8s.io/decision":"%s","authorization.k8s.io/reason":"RBAC: allowed by %s \"x\" of ClusterRole \"y\" to ServiceAccount \"z\""}}` + "\n"
	log := fmt.Sprintf(line, "create", "allow", "ClusterRoleBinding") +
		fmt.Sprintf(line, "patch", "allow", "RoleBinding") + fmt.Sprintf(line, "delete", "forbid", "")
	requests, refused := map[grant]bool{}, map[grant]bool{}
	err := auditlog.Read(strings.NewReader(log), func(e auditlog.Event) { noteRight(e, requests, refused) })
	if err != nil {
		t.Fatal(err)
	}
	if !requests[grant{"test", "create", "pods/eviction", "b", false}] ||
		!requests[grant{"test", "patch", "pods/eviction", "b", true}] || len(requests) != 2 {
		t.Errorf("allowed: %v", requests)
	}
	if !refused[grant{"test", "delete", "pods/eviction", "b", true}] || len(refused) != 1 {
		t.Errorf("refused: %v", refused)
	}
}

// TestNotGranted: a refusal counts unless deploy/ grants just that, in as wide a place.
func TestNotGranted(t *testing.T) {
	all := []grant{{"worker", "get", "pods", "", true}, {"worker", "update", "leases", "a", false}}
	for _, c := range []struct {
		refused grant
		granted bool
	}{
		{grant{"worker", "get", "pods", "x", true}, true},
		{grant{"worker", "get", "pods", "x", false}, false},
		{grant{"watcher", "get", "pods", "x", true}, false},
		{grant{"worker", "list", "pods", "", true}, false},
		{grant{"worker", "update", "leases", "a", true}, true},
		{grant{"worker", "update", "leases", "b", true}, false},
	} {
		if got := len(notGranted(all, map[grant]bool{c.refused: true})) == 0; got != c.granted {
			t.Errorf("%s: granted %t", c.refused, got)
		}
	}
}

// TestUnused: a table of what counts as use.
func TestUnused(t *testing.T) {
	all := []grant{
		{"lockkeeper-worker", "list", "pods", "", false},
		{"lockkeeper-worker", "patch", "pods", "", true},
		{"lockkeeper-worker", "get", "secrets", "key", true},
	}
	for name, c := range map[string]struct {
		did  []grant
		want []string
	}{
		"nothing": {nil, []string{
			"lockkeeper-worker: get secrets key (in a namespace)", "lockkeeper-worker: list pods",
			"lockkeeper-worker: patch pods (in a namespace)",
		}},
		"all": {[]grant{
			{"lockkeeper-worker", "list", "pods", "", false},
			{"lockkeeper-worker", "patch", "pods", "osd-0", true},
			{"lockkeeper-worker", "get", "secrets", "key", true},
		}, nil},
		"others": {
			[]grant{
				{"lockkeeper-watcher", "list", "pods", "", false},
				{"lockkeeper-worker", "patch", "pods", "osd-0", false},
				{"lockkeeper-worker", "get", "secrets", "another", true},
			},
			[]string{
				"lockkeeper-worker: get secrets key (in a namespace)", "lockkeeper-worker: list pods",
				"lockkeeper-worker: patch pods (in a namespace)",
			},
		},
	} {
		requests := map[grant]bool{}
		for _, g := range c.did {
			requests[g] = true
		}
		if got := unused(all, requests); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
