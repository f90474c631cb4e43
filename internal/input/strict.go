package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"
)

// Strict decodes a JSON object as encoding/json does, but refuses fields that the struct behind into does not have, in
// any depth, and fields that are named twice. A misspelt field would otherwise do nothing, in silence. Names of fields
// are case-sensitive, as in Kubernetes.
//
// It returns nil, or what is wrong first; then into is not to be used.
func Strict(data []byte, into any) *Error {
	if trimmed := strings.TrimSpace(string(data)); !strings.HasPrefix(trimmed, "{") {
		return Wrong("input", trimmed, "must be a JSON object with the fields "+allowed(reflect.TypeOf(into)))
	}
	strict, err := kjson.UnmarshalStrict(data, into, kjson.DisallowUnknownFields, kjson.DisallowDuplicateFields)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		return Wrong(orInput(kind.Field), string(at(data, kind.Field)), "must be "+describe(kind.Type)+", not "+kind.Value)
	case err != nil:
		return Wrong("input", string(data), err.Error())
	case len(strict) == 0:
		return nil
	}
	var field kjson.FieldError
	if !errors.As(strict[0], &field) {
		return Wrong("input", string(data), strict[0].Error())
	}
	path := orInput(field.FieldPath()) // a field may have "" for a name
	if strings.HasPrefix(strict[0].Error(), "duplicate") {
		return Wrong(path, string(at(data, path)), "is named twice")
	}
	parent := parentOf(reflect.TypeOf(into), path)
	return Wrong(path, string(at(data, path)), "no such field; allowed are "+allowed(parent))
}

func orInput(field string) string {
	if field == "" {
		return "input"
	}
	return field
}

// at is the raw value of a field, or nothing if it cannot be told: it is for messages only.
func at(data []byte, path string) json.RawMessage {
	out := json.RawMessage(data)
	for _, name := range steps(path) {
		var object map[string]json.RawMessage
		if json.Unmarshal(out, &object) != nil {
			return nil
		}
		out = object[name]
	}
	return out
}

func steps(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, ".")
}

// parentOf is the struct in which a path's last field was looked for.
func parentOf(t reflect.Type, path string) reflect.Type {
	all := steps(path)
	for _, name := range all[:max(len(all)-1, 0)] {
		t = structOf(t)
		if t == nil {
			return nil
		}
		var next reflect.Type
		for i := range t.NumField() {
			if nameOf(t.Field(i)) == name {
				next = t.Field(i).Type
			}
		}
		t = next
	}
	return t
}

// allowed lists the JSON names of a struct's fields, in the order in which they are declared.
func allowed(t reflect.Type) string {
	if t = structOf(t); t == nil {
		return "none"
	}
	var names []string
	for i := range t.NumField() {
		if name := nameOf(t.Field(i)); name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func structOf(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

// nameOf is the JSON name of an exported field; "" for one that JSON does not know.
func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case !f.IsExported() || name == "-":
		return ""
	case name == "":
		return f.Name
	}
	return name
}

// describe says what is wanted in the words of JSON.
func describe(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Struct:
		return "an object with the fields " + allowed(t)
	default:
		return fmt.Sprintf("a %s", t.Kind())
	}
}
