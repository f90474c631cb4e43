package rados

import (
	"encoding/base64"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// key makes a key of a type: the type, when it was made, its length, and the secret.
func key(number byte, length byte) Key {
	raw := append([]byte{number, 0, 1, 2, 3, 4, 5, 6, 7, 8, length, 0}, make([]byte, length)...)
	return Key(base64.StdEncoding.EncodeToString(raw))
}

func TestVersion(t *testing.T) {
	require.Regexp(t, regexp.MustCompile(`^\d+\.\d+\.\d+`), Version())
}

// A key that librados cannot read is named as what it is, instead of a permission that is denied.
func TestKeysThatLibradosCannotRead(t *testing.T) {
	for version, knows := range map[string]bool{
		"16.2.15": false, "18.2.7": false, "19.2.5": false, "19.2.6": true, "20.2.3": false, "20.2.4": true, "20.3.0": true,
		"21.1.9": false, "21.2.0": true, "22.0.0": true, "20.2.4-1-gabc": true, "": true, "unknown": true, "20": false,
	} {
		c := Config{User: "lockkeeper", Key: key(keyAES256K, 32)}
		why := c.readable(version)
		require.Equal(t, knows, why == "", "%q: %s", version, why)
		if !knows {
			for _, part := range []string{"client.lockkeeper", "AES256K", version, "20.2.4"} {
				require.Contains(t, why, part)
			}
		}
		c.Key = key(keyAES, 16)
		require.Empty(t, c.readable(version))
	}
	require.Equal(t, uint16(0), Key("not a key").keyType())
}
