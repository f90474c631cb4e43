package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

const crdName = "cephosds.ceph.elemental.net"

// ourCRD is the CRD as deploy has it.
func ourCRD(t *testing.T) map[string]any {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(*root, "deploy", "crds", "ceph.elemental.net_cephosds.yaml"))
	require.NoError(t, err)
	var crd map[string]any
	require.NoError(t, yaml.Unmarshal(content, &crd))
	return crd
}

func namedCRD() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition",
	})
	u.SetName(crdName)
	return u
}

func crdOnServer(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	u := namedCRD()
	require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(u), u))
	return u
}

// applyCRD changes the CRD as `kubectl apply` does: what a manifest does not name stays.
func applyCRD(ctx context.Context, crd map[string]any) error {
	patch, err := json.Marshal(crd)
	if err != nil {
		return err
	}
	return server.Patch(ctx, namedCRD(), client.RawPatch(types.MergePatchType, patch))
}

// keepInEtcd writes an object behind the API server's back.
func keepInEtcd(ctx context.Context, key string, object map[string]any) error {
	value, err := json.Marshal(object)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string][]byte{"key": []byte(key), "value": value})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, etcd.JoinPath("v3", "kv", "put").String(),
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if answer, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s", resp.Status, answer)
	}
	return nil
}

// The original has its CRD as v1beta1, too. One that was made from that has no schema that prunes, in a way that
// today's API server lets nobody write any more, but keeps for ever. Ours takes its place, and no object loses what it
// says.
func TestTheCRDTakesThePlaceOfOneFromV1beta1(t *testing.T) {
	ours := ourCRD(t)
	t.Cleanup(func() { assert.NoError(t, applyCRD(context.Background(), ours)) }) // the other tests', too
	old := crdOnServer(t)
	delete(old.Object["metadata"].(map[string]any), "managedFields")
	spec := old.Object["spec"].(map[string]any)
	spec["preserveUnknownFields"] = true
	spec["versions"] = []any{map[string]any{
		"name": "v1alpha1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
		"schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type":                                 "object",
			"x-kubernetes-preserve-unknown-fields": true,
		}},
	}}
	require.NoError(t, keepInEtcd(t.Context(), "/registry/apiextensions.k8s.io/customresourcedefinitions/"+crdName,
		old.Object))

	made := cephOSD(t, "from-v1beta1",
		`{storage: [{hosts: [a], osds: [{data: /dev/sdb, db: /dev/sdc1}]}], updateDomain: Host, madeUp: 7}`)
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, apiserver.Patience, true,
		func(ctx context.Context) (bool, error) {
			if spec := crdOnServer(t).Object["spec"].(map[string]any); spec["preserveUnknownFields"] != true {
				return false, nil
			}
			made.SetResourceVersion("")
			if err := server.Create(ctx, made.DeepCopy()); err != nil {
				return false, err
			}
			got, _ := fromServer(t, made)
			if _, kept := got.Object["spec"].(map[string]any)["madeUp"]; kept {
				return true, nil
			}
			return false, server.Delete(ctx, got) // the schema of before is still in force
		}))

	silent := ourCRD(t)
	delete(silent["spec"].(map[string]any), "preserveUnknownFields")
	require.ErrorContains(t, applyCRD(t.Context(), silent), "must be false in order to use defaults in the schema",
		"so it has to be written")
	require.NoError(t, applyCRD(t.Context(), ours))

	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, apiserver.Patience, true,
		func(context.Context) (bool, error) {
			got, _ := fromServer(t, made)
			return got.Object["spec"].(map[string]any)["deletionPolicy"] == "Retain", nil // with the defaults of ours
		}))
	got, set := fromServer(t, made)
	assert.Equal(t, made.Object["spec"].(map[string]any)["podTemplate"],
		got.Object["spec"].(map[string]any)["podTemplate"])
	assert.Equal(t, made.Object["spec"].(map[string]any)["storage"], got.Object["spec"].(map[string]any)["storage"])
	assert.EqualValues(t, "Host", set.Domain())
	osds, refused := set.Desired()
	assert.Empty(t, refused)
	assert.Len(t, osds, 1)

	u := cephOSD(t, "from-v1beta1", "{}")
	require.NoError(t, server.Patch(t.Context(), u,
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":true}}`))))
	_, set = fromServer(t, made)
	assert.True(t, set.Spec.Paused)
}

// Every field says what it is, for `kubectl explain`; only what is below the template does not, since it is a pod's.
func TestEveryFieldIsExplained(t *testing.T) {
	var walk func(path string, schema map[string]any)
	walk = func(path string, schema map[string]any) {
		if schema["items"] != nil {
			schema = schema["items"].(map[string]any)
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, property := range properties {
			at, property := path+"."+name, property.(map[string]any)
			assert.NotEmpty(t, property["description"], at)
			if name != "podTemplate" {
				walk(at, property)
			}
		}
	}
	for _, version := range ourCRD(t)["spec"].(map[string]any)["versions"].([]any) {
		schema := version.(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
		for _, part := range []string{"spec", "status"} {
			walk(part, schema["properties"].(map[string]any)[part].(map[string]any))
		}
	}
}
