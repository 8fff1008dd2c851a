package lint

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// These rules are about certificates in Secrets, and the servers that have them.

// beginPEM begins each block of PEM.
const beginPEM = "-----BEGIN "

// value returns the value of a key of a ConfigMap or a Secret as programs read it, and whether it has the key.
func (m *manifest) value(key string) (value string, isSet bool) {
	if text, isText := m.get("stringData", key).(string); isText {
		return text, true
	}
	text, isSet := m.get("data", key).(string)
	if m.groupKind() != kinds.Secret || !isSet {
		return text, isSet
	}
	decoded, err := base64.StdEncoding.DecodeString(text)
	return string(decoded), err == nil
}

// earlier returns the manifest of the previous payload from which a cluster updates an object; nil if there is none.
func (s *subject) earlier(m *manifest) *manifest {
	if s.previous == nil {
		return nil
	}
	for _, old := range s.previous.byID[m.id] {
		if !old.isTombstone && s.shareCluster(old, m) {
			return old
		}
	}
	return nil
}

// checkBadCertificate looks for pairs of a certificate and its key that no server can use.
func checkBadCertificate(s *subject, r *reporter) {
	for _, m := range s.byKind[kinds.Secret] {
		if certificate, isSet := m.value(corev1.TLSCertKey); isSet && !m.isTombstone {
			old := s.earlier(m)
			for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
				value, _ := m.value(key)
				if why := whyNotPEM(value, old.hasPEM(key)); why != "" {
					r.field(m, []string{m.dataField(key), key}, "%s %s", key, why)
					return
				}
			}
			if chain := chainOf(certificate); len(chain) > 0 {
				checkPair(m, old, chain, r)
			}
		}
	}
}

// hasPEM reports whether a key of a previous Secret has a text in PEM.
func (m *manifest) hasPEM(key string) bool {
	if m == nil {
		return false
	}
	value, _ := m.value(key)
	block, _ := pem.Decode([]byte(value))
	return block != nil
}

// whyNotPEM returns the reason why no program can read a value as PEM; "" if programs can, or if a controller or a
// person may still replace the value.
func whyNotPEM(value string, wasPEM bool) string {
	block, _ := pem.Decode([]byte(value))
	inner, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
	switch {
	case block != nil && strings.Contains(block.Type+block.Headers["Proc-Type"], "ENCRYPTED"):
		return "needs a passphrase, which nothing enters: store the key without one"
	case block != nil:
		return ""
	case strings.HasPrefix(string(inner), beginPEM):
		return "is base64 of base64: write the text in stringData, or encode it once"
	case strings.Contains(value, beginPEM) && strings.Contains(value, `\n`):
		return `has \n as text where a line has to end: write a block that begins with |, or use double quotes`
	case strings.Contains(value, beginPEM):
		return "is incomplete or has blanks in its lines, so no program can read it as PEM: write the file unchanged"
	case wasPEM:
		return "has no PEM, and the previous payload had: write the file unchanged"
	}
	return ""
}

// chainOf returns the certificates of a text in PEM.
func chainOf(text string) (chain []*x509.Certificate) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			chain = append(chain, certificate)
		}
	}
	return chain
}

// checkPair looks for a certificate that has expired, is not that of the key, or lacks its issuer.
func checkPair(m, old *manifest, chain []*x509.Certificate, r *reporter) {
	report := func(key, format string, args ...any) { r.field(m, []string{m.dataField(key), key}, format, args...) }
	key, _ := m.value(corev1.TLSPrivateKeyKey)
	leaf, now := chain[0], time.Now()
	isUnusable := strings.Contains(key, beginPEM) && m.serverChain() == nil
	var before []*x509.Certificate
	if old != nil {
		text, _ := old.value(corev1.TLSCertKey)
		before = chainOf(text)
	}
	switch {
	case isUnusable && len(chain) > 1 && chain[1].CheckSignatureFrom(leaf) == nil:
		report(corev1.TLSCertKey, "tls.crt begins with the certificate of an issuer, to which tls.key does not "+
			"belong: put the certificate of the server first")
	case isUnusable:
		report(corev1.TLSPrivateKeyKey, "tls.key is not the key of the certificate in tls.crt, so no server can use "+
			"them: replace both at once")
	case now.After(leaf.NotAfter):
		report(corev1.TLSCertKey, "the certificate expired on %s, so clients refuse it: renew it",
			leaf.NotAfter.Format(time.DateOnly))
	case now.Before(leaf.NotBefore):
		report(corev1.TLSCertKey, "the certificate is not valid before %s, so clients refuse it: issue it anew",
			leaf.NotBefore.Format(time.DateOnly))
	case len(before) > 1 && len(chain) == 1 && leaf.CheckSignatureFrom(before[1]) == nil:
		report(corev1.TLSCertKey, "tls.crt no longer has the certificate of its issuer, as the previous payload had, "+
			"so clients do not trust it: append it")
	}
}

// serverChain returns the certificates that a server sends; none if it can't use them.
func (m *manifest) serverChain() []*x509.Certificate {
	certificate, _ := m.value(corev1.TLSCertKey)
	key, _ := m.value(corev1.TLSPrivateKeyKey)
	if _, err := tls.X509KeyPair([]byte(certificate), []byte(key)); err != nil {
		return nil
	}
	return chainOf(certificate)
}

// checkUntrustedCertificate looks for servers with certificates that their clients refuse: browsers with the hosts of
// an Ingress, and the API server with a Service.
func checkUntrustedCertificate(s *subject, r *reporter) {
	each(s, kinds.Ingress, func(m *manifest, ingress *networkingv1.Ingress) {
		for i, entry := range ingress.Spec.TLS {
			secret := s.present(kinds.NewID(kinds.Secret, m.id.Namespace, entry.SecretName), m)
			if secret == nil {
				continue
			}
			for j, host := range entry.Hosts {
				if why := whyRefused(secret.serverChain(), host, nil); why != "" {
					r.field(m, []string{"spec", "tls", strconv.Itoa(i), "hosts", strconv.Itoa(j)},
						"tls.crt of %s (%s:%d) %s, so clients refuse it: issue a certificate for the host", secret.id,
						secret.Path, secret.Line, why)
				}
			}
		}
	})
	for _, m := range s.normal {
		for _, reference := range m.references {
			if path := reference.Path; reference.To.GroupKind() == kinds.Service && len(path) > 1 &&
				path[len(path)-2] == "service" && m.groupKind() != kinds.Ingress {
				s.checkBundle(m, path[:len(path)-2], reference.To, r)
			}
		}
	}
}

// present returns the manifest of an object on a cluster of another one; nil if there is none.
func (s *subject) present(id kinds.ID, by *manifest) *manifest {
	for _, m := range s.byID[id] {
		if !m.isTombstone && s.shareCluster(m, by) {
			return m
		}
	}
	return nil
}

// whyRefused returns the reason why clients that trust some authorities refuse the certificate of a server; "" if they
// do not, or if there is no certificate. Without authorities it looks only at the name and the purpose.
func whyRefused(chain []*x509.Certificate, host string, authorities *x509.CertPool) string {
	if len(chain) == 0 {
		return ""
	}
	leaf, others := chain[0], x509.NewCertPool()
	for _, issuer := range chain[1:] {
		others.AddCert(issuer)
	}
	options := x509.VerifyOptions{Roots: authorities, Intermediates: others, CurrentTime: leaf.NotBefore}
	names, usages := slices.Concat(leaf.DNSNames, leaf.EmailAddresses), leaf.ExtKeyUsage
	for _, address := range leaf.IPAddresses {
		names = append(names, address.String())
	}
	switch err := leaf.VerifyHostname(host); {
	case err != nil && len(names) == 0:
		return "has no subject alternative name, only a common name, which clients ignore"
	case err != nil:
		return fmt.Sprintf("is for %s, not for %s", strings.Join(names, ", "), host)
	case len(usages) > 0 && !slices.Contains(usages, x509.ExtKeyUsageServerAuth) &&
		!slices.Contains(usages, x509.ExtKeyUsageAny):
		return "is not for servers, as its extended key usage shows"
	}
	if authorities != nil {
		if _, err := leaf.Verify(options); err != nil {
			return "is of another authority than those in caBundle"
		}
	}
	return ""
}

// checkBundle looks for the certificate of a Service that the API server calls, and compares it with the name of the
// Service and the authorities of the client configuration.
func (s *subject) checkBundle(m *manifest, path []string, id kinds.ID, r *reporter) {
	config, _ := fieldAt(m.Object().Object, path).(map[string]any)
	encoded, _ := config["caBundle"].(string)
	bundle, _ := base64.StdEncoding.DecodeString(encoded)
	isInjected := slices.ContainsFunc(sortedKeys(m.annotations), func(key string) bool {
		return strings.Contains(key, "inject")
	})
	if strings.TrimSpace(string(bundle)) == "" || isInjected {
		return
	}
	field := append(slices.Clone(path), "caBundle")
	authorities, trusted := x509.NewCertPool(), chainOf(string(bundle))
	for _, authority := range trusted {
		authorities.AddCert(authority)
	}
	old := s.earlier(m)
	switch {
	case len(trusted) == 0 && (old == nil || fieldAt(old.Object().Object, field) != encoded):
		r.field(m, field, "caBundle has no certificate in PEM, so the API server can't call %s", id)
	case len(trusted) == 0:
	case !slices.ContainsFunc(trusted, func(c *x509.Certificate) bool { return time.Now().Before(c.NotAfter) }):
		r.field(m, field, "the certificates in caBundle expired on %s, so the API server can't call %s: renew "+
			"them",
			trusted[0].NotAfter.Format(time.DateOnly), id)
	default:
		if secret, why := s.whyUntrusted(id, m, authorities); why != "" {
			r.field(m, field, "tls.crt of %s (%s:%d) %s, so the API server can't call %s: change the "+
				"certificate and caBundle together", secret.id, secret.Path, secret.Line, why, id)
		}
	}
}

// whyUntrusted returns the reason why a client with some authorities trusts no certificate that the pods of a Service
// mount, and the Secret with the last one.
func (s *subject) whyUntrusted(id kinds.ID, by *manifest, authorities *x509.CertPool) (last *manifest, why string) {
	service := s.present(id, by)
	if service == nil {
		return nil, ""
	}
	pods, _, _ := s.selected(service)
	for _, set := range pods {
		for _, reference := range set.by.references {
			secret := s.present(reference.To, by)
			if secret == nil || secret.groupKind() != kinds.Secret || !slices.Contains(reference.Path, "volumes") {
				continue
			}
			if chain := secret.serverChain(); len(chain) > 0 {
				if why = whyRefused(chain, id.Name+"."+id.Namespace+".svc", authorities); why == "" {
					return nil, ""
				}
				last = secret
			}
		}
	}
	return last, why
}
