package podspec

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// TemplateHash is by which template a pod was made: the first 16 hexadecimal digits of the SHA-512 of spec.podTemplate,
// as it is in the API server, in JSON. It is byte for byte that of the original operator as long as it made pods and
// not ReplicaSets, so that its pods are recognised. That was written in Python, and takes
//
//	json.dumps(template, separators=(',', ':'), sort_keys=True)
//
// which sorts keys by code point and writes everything that is not printable ASCII as \uXXXX.
//
// The template has to come straight from the API server, as an unstructured object: what Go's types add to it, or do
// not know, would change the hash.
func TemplateHash(template any) (string, error) {
	var b strings.Builder
	if err := writePython(&b, template); err != nil {
		return "", err
	}
	sum := sha512.Sum512([]byte(b.String()))
	return hex.EncodeToString(sum[:])[:16], nil
}

// writePython writes a value of an unstructured object as Python's json.dumps does.
func writePython(b *strings.Builder, value any) error {
	switch v := value.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		b.WriteString(pythonFloat(v))
	case string:
		writePythonString(b, v)
	case []any:
		return writePythonList(b, v)
	case map[string]any:
		return writePythonDict(b, v)
	default:
		return fmt.Errorf("spec.podTemplate: %T is no value of an unstructured object", value)
	}
	return nil
}

func writePythonList(b *strings.Builder, list []any) error {
	separator := "["
	for _, item := range list {
		b.WriteString(separator)
		separator = ","
		if err := writePython(b, item); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		b.WriteString("[")
	}
	b.WriteString("]")
	return nil
}

func writePythonDict(b *strings.Builder, dict map[string]any) error {
	separator := "{"
	for _, key := range slices.Sorted(maps.Keys(dict)) {
		b.WriteString(separator)
		separator = ","
		writePythonString(b, key)
		b.WriteString(":")
		if err := writePython(b, dict[key]); err != nil {
			return err
		}
	}
	if len(dict) == 0 {
		b.WriteString("{")
	}
	b.WriteString("}")
	return nil
}

var pythonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\f': `\f`, '\b': `\b`}

func writePythonString(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		escape, ok := pythonEscapes[r]
		switch {
		case ok:
			b.WriteString(escape)
		case r >= ' ' && r <= '~':
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
}

// pythonFloat writes a number that is not whole as Python does. No field of a pod takes one; what an older CRD let
// through should still have the same hash.
func pythonFloat(f float64) string {
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
