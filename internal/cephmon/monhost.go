package cephmon

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file tells everybody else where the mons are. A client follows the monmap while it runs; one that starts finds
// the mons by the list that it was given, and with a list of mons that have all gone it finds nobody. Each list is
// written when a newcomer is in quorum, before the mon that it replaces leaves.

// csiConfig is the ConfigMap by which Ceph's CSI drivers find the mons of each cluster.
const (
	csiConfig    = "rook-ceph-csi-config"
	csiConfigKey = "csi-cluster-config-json"
)

// saveForClients writes the lists of those who do not read the endpoints.
func (x act) saveForClients(ctx context.Context, q ceph.QuorumStatus, names []string) error {
	var vectors, plain []string
	for _, name := range names {
		mon, _ := q.Find(name)
		vectors, plain = append(vectors, mon.Address()), append(plain, endpoint(mon))
	}
	if err := x.saveMonHost(ctx, vectors, names); err != nil {
		return fmt.Errorf("Secret rook-ceph-config: %w", err)
	}
	csi := func(text string) (string, error) { return csiMonitors(text, x.namespace(), plain) }
	if err := x.rewrite(ctx, csiConfig, csiConfigKey, csi); err != nil {
		return err
	}
	known := append(slices.Clone(plain), x.endpointAddresses()...)
	config := x.set.Spec.Ceph.Config
	return x.rewrite(ctx, config.Name, config.Key, func(text string) (string, error) {
		return confMonHost(text, strings.Join(vectors, ","), known), nil
	})
}

// saveMonHost keeps Rook's Secret with the addresses, if there is one. It has no key, and is written without being
// read.
func (x act) saveMonHost(ctx context.Context, addresses, names []string) error {
	patch, err := json.Marshal(map[string]any{"stringData": map[string]string{
		"mon_host": strings.Join(addresses, ","), "mon_initial_members": strings.Join(names, ","),
	}})
	if err != nil {
		return err
	}
	_, err = x.typed.CoreV1().Secrets(x.namespace()).Patch(ctx, "rook-ceph-config", types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: kube.FieldOwner})
	return client.IgnoreNotFound(err)
}

// rewrite changes one key of a ConfigMap, if there is one and it says something else.
func (x act) rewrite(ctx context.Context, name, key string, change func(string) (string, error)) error {
	if name == "" || key == "" {
		return nil
	}
	maps := x.typed.CoreV1().ConfigMaps(x.namespace())
	c, err := maps.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ConfigMap %s, which names the mons: %w", name, err)
	}
	before, has := c.Data[key]
	if !has {
		return nil
	}
	after, err := change(before)
	if err != nil || after == before {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": c.ResourceVersion}, "data": map[string]string{key: after},
	})
	if err != nil {
		return err
	}
	_, err = maps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: kube.FieldOwner})
	return err
}

// csiMonitors writes the monitors of one cluster into the list of all. What else is in it stays as it is.
func csiMonitors(text, namespace string, monitors []string) (string, error) {
	var clusters []map[string]any
	if strings.TrimSpace(text) == "" {
		return text, nil
	}
	if err := json.Unmarshal([]byte(text), &clusters); err != nil {
		return "", fmt.Errorf("ConfigMap %s: %s: %w", csiConfig, csiConfigKey, err)
	}
	changed := false
	for _, c := range clusters {
		if c["clusterID"] != namespace && c["namespace"] != namespace {
			continue
		}
		if list, _ := c["monitors"].([]any); !sameStrings(list, monitors) {
			c["monitors"], changed = monitors, true
		}
	}
	if !changed {
		return text, nil
	}
	out, err := json.Marshal(clusters)
	return string(out), err
}

func sameStrings(list []any, want []string) bool {
	return slices.EqualFunc(list, want, func(a any, b string) bool { return a == b })
}

// monHost is the line of a ceph.conf that names the mons.
var monHost = regexp.MustCompile(`(?m)^([ \t]*mon[ _]host[ \t]*=[ \t]*)(.*)$`)

// confMonHost writes the addresses of the mons into a ceph.conf that has some of them. Names, which somebody else keeps
// up to date, stay as they are.
func confMonHost(text, addresses string, known []string) string {
	return monHost.ReplaceAllStringFunc(text, func(line string) string {
		parts := monHost.FindStringSubmatch(line)
		for _, address := range known {
			ip, _, _ := strings.Cut(strings.TrimPrefix(address, "["), "]")
			if host, _, has := strings.Cut(address, ":"); has && !strings.HasPrefix(address, "[") {
				ip = host
			}
			if ip != "" && containsAddress(parts[2], ip) {
				return parts[1] + addresses
			}
		}
		return line
	})
}

// containsAddress: 10.0.0.1 is not in a list of 10.0.0.10.
func containsAddress(list, ip string) bool {
	words := strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(" ,;[]/", r) })
	return slices.ContainsFunc(words, func(word string) bool {
		word = strings.TrimPrefix(strings.TrimPrefix(word, "v1:"), "v2:")
		return word == ip || strings.HasPrefix(word, ip+":")
	})
}

// endpointAddresses are the addresses that the endpoints name now.
func (w *world) endpointAddresses() (out []string) {
	for _, entry := range strings.Split(w.endpoints.Data[w.endpointsKey()], ",") {
		_, address, _ := strings.Cut(strings.TrimSpace(entry), "=")
		out = append(out, address)
	}
	return out
}
