package ceph

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// InvalidError is a value that a person wrote and that cannot be used.
type InvalidError struct {
	Field   string // where it stands: "spec.ceph.connection.monEndpoints"
	Value   string // what was found
	Allowed string // what would be right
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s: %q is not allowed; allowed is %s", e.Field, e.Value, e.Allowed)
}

// maxMonEndpoints is far more monitors than any cluster has, and keeps a wrong value from filling a log.
const maxMonEndpoints = 64

const allowedEndpoints = `a comma-separated list of monitors, each with or without its name, such as ` +
	`"a=10.0.0.1:6789", "10.0.0.2:3300", "[fd00::1]:3300", "mon.example.org" or "c=[v2:10.0.0.3:3300/0,v1:10.0.0.3:6789/0]"`

// ParseMonEndpoints turns the monitors' addresses into the value of Ceph's option mon_host:
// "10.0.0.1:6789,[v2:…,v1:…]".
//
// It takes what Rook keeps in its ConfigMap ("a=10.0.0.1:6789,b=…") and what mon_host itself may be. An address without
// a port, and one without v1: or v2:, is left to librados, which tries both protocols. Errors are *InvalidError and
// name field.
func ParseMonEndpoints(field, value string) (string, error) {
	var hosts []string
	for _, entry := range splitOutsideBrackets(value) {
		address := entry
		if name, rest, named := strings.Cut(entry, "="); named {
			if !monName.MatchString(name) {
				return "", &InvalidError{Field: field, Value: entry, Allowed: allowedEndpoints}
			}
			address = rest
		}
		if !validMonAddress(address) || len(hosts) == maxMonEndpoints {
			return "", &InvalidError{Field: field, Value: entry, Allowed: allowedEndpoints}
		}
		hosts = append(hosts, address)
	}
	if len(hosts) == 0 {
		return "", &InvalidError{Field: field, Value: value, Allowed: allowedEndpoints}
	}
	return strings.Join(hosts, ","), nil
}

var (
	monName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	dnsName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?$`)
)

// splitOutsideBrackets splits at commas, semicolons and white space, which are what mon_host allows, but not inside [].
// Empty parts are left out.
func splitOutsideBrackets(value string) []string {
	depth := 0
	return strings.FieldsFunc(value, func(r rune) bool {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		case ',', ';', ' ', '\t', '\n', '\r':
			return depth <= 0
		}
		return false
	})
}

// validMonAddress takes one address, or several of one monitor in brackets: "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]".
func validMonAddress(address string) bool {
	if inner, ok := addressVector(address); ok {
		for _, one := range strings.Split(inner, ",") {
			if !strings.HasPrefix(one, "v1:") && !strings.HasPrefix(one, "v2:") || !validSingleAddress(one) {
				return false
			}
		}
		return true
	}
	return validSingleAddress(address)
}

// addressVector takes the brackets off "[v2:…]"; "[fd00::1]:3300" and "[fd00::1]" have none of that kind.
func addressVector(address string) (string, bool) {
	inner, open := strings.CutPrefix(address, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	return inner, open && closed && (strings.HasPrefix(inner, "v1:") || strings.HasPrefix(inner, "v2:"))
}

// validSingleAddress takes "[v1:|v2:]host[:port][/nonce]", where host is an IPv4 address, an IPv6 address in brackets,
// or a DNS name without v1: or v2:.
func validSingleAddress(address string) bool {
	rest, isV1 := strings.CutPrefix(address, "v1:")
	rest, isV2 := strings.CutPrefix(rest, "v2:")
	if isV1 && isV2 {
		return false
	}
	rest, nonce, hasNonce := strings.Cut(rest, "/")
	if hasNonce && !validNumber(nonce, 0, 32) {
		return false
	}
	if strings.HasPrefix(rest, "[") {
		port, hasPort := "", false
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return false
		}
		if ip, err := netip.ParseAddr(rest[1:end]); err != nil || !ip.Is6() || ip.Zone() != "" {
			return false
		}
		if after := rest[end+1:]; after != "" {
			if port, hasPort = strings.CutPrefix(after, ":"); !hasPort {
				return false
			}
		}
		return !hasPort || validNumber(port, 1, 16)
	}
	host, port, hasPort := strings.Cut(rest, ":")
	if hasPort && !validNumber(port, 1, 16) {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Is4()
	}
	// A name with digits and dots only is an IPv4 address with a mistake in it.
	return !isV1 && !isV2 && dnsName.MatchString(host) &&
		strings.ContainsAny(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz")
}

func validNumber(text string, least uint64, bits int) bool {
	n, err := strconv.ParseUint(text, 10, bits)
	return err == nil && n >= least && text[0] != '+'
}
