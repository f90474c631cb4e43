// trimcrd makes a CRD that can take the place of the original operator's, and whose templates are what people wrote.
//
// It writes preserveUnknownFields: false, although that is the default. A CRD that was made from a v1beta1 manifest has
// it true, `kubectl apply` leaves alone what a manifest does not name, and the API server then refuses every schema
// with defaults.
//
// And it takes out what Kubernetes' own types bring along and a template of a pod must not have. Below every field
// named podTemplate it removes
//
//   - defaults: a template's hash is taken of what was written, and a default that the API server added would make
//     every pod look out of date;
//   - list and map types: where Kubernetes lets a pod name something twice (and the last wins), so must a template;
//   - descriptions: with them the CRD has more than the 256 KiB that fit into the annotation of `kubectl apply`. They are
//     those of a pod: kubectl explain pod.spec. Only the template's own stays.
//
// Usage: trimcrd FILE, which is rewritten.
package main

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "trimcrd:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the name of one file, not %q", args)
	}
	content, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(content, &crd); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	if trimTemplates(crd) == 0 {
		return fmt.Errorf("%s: no field podTemplate", args[0])
	}
	spec, ok := crd["spec"].(map[string]any)
	if !ok {
		return fmt.Errorf("%s: no spec", args[0])
	}
	spec["preserveUnknownFields"] = false
	trimmed, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], append([]byte("---\n"), trimmed...), 0o644)
}

// trimTemplates trims the schemas of the fields named podTemplate, and says how many there are.
func trimTemplates(node any) (found int) {
	switch node := node.(type) {
	case map[string]any:
		for name, value := range node {
			if schema, ok := value.(map[string]any); ok && name == "podTemplate" {
				description, described := schema["description"]
				trim(schema)
				if described {
					schema["description"] = description
				}
				found++
				continue
			}
			found += trimTemplates(value)
		}
	case []any:
		for _, value := range node {
			found += trimTemplates(value)
		}
	}
	return found
}

// trim trims what a schema consists of: schemas of properties, of items, and of the values of maps. It goes by the
// names of keywords, and so must not look for them among the names of properties.
func trim(schema map[string]any) {
	for keyword, value := range schema {
		switch {
		case keyword == "default" || strings.HasPrefix(keyword, "x-kubernetes-list-") || keyword == "x-kubernetes-map-type":
			delete(schema, keyword)
		case keyword == "description":
			delete(schema, keyword)
		case keyword == "properties":
			for _, property := range value.(map[string]any) {
				trim(property.(map[string]any))
			}
		case keyword == "items" || keyword == "additionalProperties":
			if inner, ok := value.(map[string]any); ok {
				trim(inner)
			}
		}
	}
}
