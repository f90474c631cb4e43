package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The CustomResourceDefinitions of deploy/crds know all that this program does; one that lacks a field is found out.
func TestCRDsKnowTheirTypes(t *testing.T) {
	for name, field := range map[CRD]string{PolicyCRD: "status.lease", CephOSDCRD: "spec.progressDeadline"} {
		plural, group, _ := strings.Cut(string(name), ".")
		raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", "crds", group+"_"+plural+".yaml"))
		require.NoError(t, err)
		crd := map[string]any{}
		require.NoError(t, yaml.Unmarshal(raw, &crd))
		versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
		require.NoError(t, err)
		version := versions[0].(map[string]any)
		assert.Equal(t, name.version(), version["name"])
		known, _, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties")
		require.NoError(t, err)
		assert.Empty(t, name.missing(known), name)

		of, property, _ := strings.Cut(field, ".")
		unstructured.RemoveNestedField(known, of, "properties", property)
		assert.Equal(t, []string{field}, name.missing(known))
	}
}
