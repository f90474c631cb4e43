package input

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockkeeper/lockkeeper/internal/brief"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

const nameRule = "lower-case letters, digits, '-' and '.', at most 253 of them"

// NodeName checks the name of a node. One that Kubernetes could not have given would fail at every request, for ever.
func NodeName(field, name string) *Error {
	switch {
	case name == "":
		return Wrong(field, name, "the name of a node is required; `kubectl get nodes` lists them")
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return Wrong(field, name, "must be the name of a node: "+nameRule)
	}
	return nil
}

// TaintKey checks the key of a taint.
func TaintKey(field, key string) *Error {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return Wrong(field, key, "must be the key of a taint: "+strings.Join(problems, "; "))
	}
	return nil
}

// PolicyKey reads "namespace/name".
func PolicyKey(field, policy string) (storage.ClusterKey, *Error) {
	ns, name, ok := strings.Cut(policy, "/")
	key := storage.ClusterKey{Namespace: ns, Name: name}
	if !ok || ns == "" || name == "" {
		return storage.ClusterKey{},
			Wrong(field, policy, "must be namespace/name of a MaintenancePolicy; `kubectl get maintenancepolicies -A` lists them")
	}
	if err := Cluster(field, key); err != nil {
		return storage.ClusterKey{}, err
	}
	return key, nil
}

// PolicyKeys reads what names one MaintenancePolicy, or several that are separated by commas. "": none.
func PolicyKeys(field, policies string) (keys []storage.ClusterKey, err *Error) {
	if policies == "" {
		return nil, nil
	}
	for policy := range strings.SplitSeq(policies, ",") {
		key, err := PolicyKey(field, strings.TrimSpace(policy))
		if err != nil {
			return nil, err
		}
		if slices.Contains(keys, key) {
			return nil, Wrong(field, policies, "must name each policy once, and names "+key.String()+" twice")
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Cluster checks the key of a storage cluster: both parts are names that Kubernetes could have given.
func Cluster(field string, k storage.ClusterKey) *Error {
	switch {
	case len(validation.IsDNS1123Label(k.Namespace)) > 0:
		return Wrong(field, k.String(), "the namespace must be lower-case letters, digits and '-', at most 63 of them")
	case len(validation.IsDNS1123Subdomain(k.Name)) > 0:
		return Wrong(field, k.String(), "the name must be "+nameRule)
	}
	return nil
}

const mostPolicies = 8 // that an error names

// PolicyOf is which of the MaintenancePolicies of a namespace is meant by a name, or by none: then the only one. field
// is where the name stands.
func PolicyOf(field, namespace, name string, all []string) (string, *Error) {
	switch {
	case len(all) == 0:
		return "", Wrong(field, name,
			"there is no MaintenancePolicy in namespace "+namespace+": without one nothing says how to reach Ceph, and nothing "+
				"guards it")
	case slices.Contains(all, name):
		return name, nil
	case name != "":
		return "", Wrong(field, name,
			"must be a MaintenancePolicy of namespace "+namespace+": "+brief.List(all, mostPolicies))
	case len(all) > 1:
		return "", Wrong(field, name, "must name one of several: "+brief.List(all, mostPolicies))
	}
	return all[0], nil
}

// PodSelector checks a label selector; "" selects everything. The parser keeps sets in maps, but sorts them before
// anybody sees the order, so that a workflow may call it.
//
//workflowcheck:ignore
func PodSelector(field, selector string) *Error {
	if _, err := labels.Parse(selector); err != nil {
		return Wrong(field, selector, "must be a label selector such as app=web: "+err.Error())
	}
	return nil
}

// MostText is how long a text may be that is shown to others. It is kept in a status and in histories, whose size is
// limited: one that is far too long would keep its job, or its keeper, from ever going on.
const MostText = 500

// Text checks a text that is shown to others.
func Text(field, text string) *Error {
	if n := utf8.RuneCountInString(text); n > MostText {
		return Wrong(field, text, fmt.Sprintf("must be at most %d characters, not %d", MostText, n))
	}
	return nil
}

// Image checks what a container's image may be called; "" is nothing to be checked.
func Image(field, image string) *Error {
	if image == "" {
		return nil
	}
	if _, err := reference.ParseNormalizedNamed(image); err != nil {
		return Wrong(field, image, "must be the name of a container image, such as ceph/ceph:v20.2.4: "+err.Error())
	}
	return nil
}

// VersionOfImage checks what a person says an image's version of Ceph is; "" says nothing.
func VersionOfImage(field, version, image string) *Error {
	if version == "" {
		return nil
	}
	if image == "" {
		return Wrong(field, version, "is the version of an image, and none is given")
	}
	if _, err := upgrade.ParseVersion(version); err != nil {
		return Wrong(field, version, "must be a version of Ceph, such as 18.2.7")
	}
	return nil
}
