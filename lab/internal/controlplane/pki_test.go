package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestPKI(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if err := writePKI(dir, "https://127.0.0.1:1", net.IPv4(127, 128, 0, 1)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, caFile))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(before)
	check := func(pair tls.Certificate, usage x509.ExtKeyUsage, name string) *x509.Certificate {
		t.Helper()
		cert, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{
			Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage},
			DNSName: name,
		}); err != nil {
			t.Error(err)
		}
		return cert
	}
	for file, names := range map[string][]string{
		apiserverName: {"127.0.0.1", "127.128.0.1", "kubernetes.default.svc"},
		kubeletName:   {"127.0.0.1"},
	} {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, file+".crt"), filepath.Join(dir, file+".key"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			check(pair, x509.ExtKeyUsageServerAuth, name)
		}
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cfg.CertData, cfg.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	if cert := check(pair, x509.ExtKeyUsageClientAuth, ""); cert.Subject.CommonName != "admin" ||
		cert.Subject.Organization[0] != "system:masters" {
		t.Errorf("subject %s", cert.Subject)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %s, %v", e.Name(), info.Mode(), err)
		}
	}
	if err := writePKI(dir, "https://127.0.0.1:1", net.IPv4(127, 128, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, caFile)); string(after) != string(before) {
		t.Error("made again")
	}
}
