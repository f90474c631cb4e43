package rookceph

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// identity is what makes this cluster itself. It is chosen once, before any daemon runs, so that no key has to be
// fetched from a running monitor.
type identity struct {
	FSID string `json:"fsid"`
	// Keys are the cephx secrets by entity, such as osd.0.
	Keys map[string]string `json:"keys"`
	// OSDs are the UUIDs by OSD.
	OSDs []string `json:"osds"`
}

func (c cluster) newIdentity(now time.Time) identity {
	id := identity{FSID: string(uuid.NewUUID()), Keys: map[string]string{}}
	for _, e := range c.entities() {
		id.Keys[e.name] = newKey(now, c.keyType(e.name))
	}
	for range c.topo.OSDs() {
		id.OSDs = append(id.OSDs, string(uuid.NewUUID()))
	}
	return id
}

// keyType is how long a cephx secret is, and what for.
type keyType struct {
	number uint16
	bytes  int
}

var (
	aes     = keyType{1, 16}
	aes256k = keyType{2, 32} // from Ceph 20.2.4 on
)

func (c cluster) keyType(entity string) keyType {
	keys := c.topo.Keys()
	if keys == instance.CephKeysAES || keys == instance.CephKeysBoth && strings.HasPrefix(entity, "client.") {
		return aes
	}
	return aes256k
}

// ciphers are the types of keys that the monitors allow.
func (c cluster) ciphers() string {
	if c.topo.Keys() == instance.CephKeysAES256K {
		return "aes256k"
	}
	return "aes,aes256k"
}

// newKey makes a cephx secret: its type, creation time in seconds and nanoseconds, length, and random bytes, little
// endian, in base64 (src/auth/Crypto.cc, CryptoKey::encode).
func newKey(now time.Time, t keyType) string {
	secret := make([]byte, t.bytes)
	rand.Read(secret)
	var b bytes.Buffer
	for _, v := range []any{
		t.number, uint32(now.Unix()), uint32(now.Nanosecond()), uint16(len(secret)), secret,
	} {
		binary.Write(&b, binary.LittleEndian, v) //nolint:errcheck // a bytes.Buffer takes everything
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// entity is a user of the cluster and what it may do.
type entity struct {
	name string
	caps [][2]string // service and capability, in the order in which they are written
}

// clientMonCaps are all that lockkeeper asks of the monitors. Commands of the manager are relayed by them, so nothing
// is asked of the manager itself. Everything else is refused, other flags than noout included.
var clientMonCaps = strings.Join([]string{
	`allow command "status"`,
	`allow command "quorum_status"`,
	`allow command "mon dump"`,
	`allow command "mgr stat"`,
	`allow command "osd dump"`,
	`allow command "osd tree"`,
	`allow command "osd crush dump"`,
	`allow command "osd crush rule dump"`,
	`allow command "pg stat"`,
	`allow command "pg dump"`,
	`allow command "osd ok-to-stop"`,
	`allow command "osd set-group" with flags=noout`,
	`allow command "osd unset-group" with flags=noout`,
	`allow command "mon ok-to-stop"`,
	`allow command "mon ok-to-rm"`,
	`allow command "mon ok-to-add-offline"`,
	`allow command "mon remove"`,
	`allow command "mon rm"`,
}, ", ")

func (c cluster) entities() []entity {
	all := []entity{
		{"mon.", [][2]string{{"mon", "allow *"}}},
		{"client.admin", [][2]string{{"mon", "allow *"}, {"mgr", "allow *"}, {"osd", "allow *"}, {"mds", "allow *"}}},
		{ClientName, [][2]string{{"mon", clientMonCaps}}},
		{"mgr." + mgrName, [][2]string{{"mon", "allow profile mgr"}, {"osd", "allow *"}, {"mds", "allow *"}}},
	}
	for _, osd := range c.topo.OSDs() {
		all = append(all, entity{osdName(osd.ID), [][2]string{
			{"mon", "allow profile osd"}, {"mgr", "allow profile osd"}, {"osd", "allow *"},
		}})
	}
	return all
}

func osdName(id int) string { return fmt.Sprintf("osd.%d", id) }

// keyring writes one entity as Ceph's keyring files have it. Quotes within a capability are escaped.
func (id identity) keyring(e entity) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s]\n\tkey = %s\n", e.name, id.Keys[e.name])
	for _, c := range e.caps {
		fmt.Fprintf(&b, "\tcaps %s = \"%s\"\n", c[0], strings.ReplaceAll(c[1], `"`, `\"`))
	}
	return b.String()
}

// keyrings is the file from which the monitors learn every user before their first election.
func (id identity) keyrings(entities []entity) string {
	var b strings.Builder
	for _, e := range entities {
		b.WriteString(id.keyring(e))
	}
	return b.String()
}

func (c cluster) loadIdentity() (identity, error) {
	var id identity
	b, err := os.ReadFile(c.path("identity.json"))
	if err != nil {
		return identity{}, err
	}
	if err := json.Unmarshal(b, &id); err != nil {
		return identity{}, fmt.Errorf("%s: %w", c.path("identity.json"), err)
	}
	return id, nil
}

func (c cluster) saveIdentity(id identity) error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.path("identity.json"), append(b, '\n'), 0o600)
}
