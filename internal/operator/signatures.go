package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/release/signature"
)

// A verification is the result of the signature check of a release's image.
type verification struct {
	isVerified  bool
	unverified  string   // why it was accepted without a verification; empty if it was verified, or after a restart
	risk        string   // the risk that force has overridden
	risksBefore []string // that were accepted before a restart
}

// recorded returns the verification of the image of the release that was begun last. An operator that was killed may
// have left it in the record alone.
func recorded(v *configv1.ClusterVersion, known *record.Record, image string) (found verification) {
	if newest := known.Newest(); newest != nil && newest.Source == image {
		found = verification{isVerified: newest.Verified, risksBefore: newest.Forced}
	}
	if history := v.Status.History; len(history) > 0 && history[0].Image == image && history[0].AcceptedRisks != "" {
		found.risksBefore = []string{history[0].AcceptedRisks} // which has more details
	}
	return found
}

// acceptedRisks returns the risks that were accepted: those of before, the one of the signature, and others by name.
func (v verification) acceptedRisks(others []string) string {
	before := strings.Join(v.risksBefore, ", ")
	words := strings.FieldsFunc(before, func(r rune) bool { return strings.ContainsRune(" ,\n", r) })
	others = slices.DeleteFunc(slices.Clone(others), func(name string) bool { return slices.Contains(words, name) })
	lines := []string{before, v.risk, strings.Join(others, ", ")}
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return line == "" }), "\n")
}

// verify looks for the signatures that the release which is kept in place demands of the image of the next one. The
// first release of an operator is not verified: there is no release before it. Force goes on without a signature.
func (t *acceptance) verify(ctx context.Context, current *running) error {
	if current == nil && t.target.Before == nil {
		t.signed = t.target.signed
		return nil
	}
	if current == nil { // the release before can't be read, or this would not be tried without force
		t.signed.risk = t.forcedRisk(
			fmt.Errorf("release %s can't be read, which may demand signatures", t.target.Before.Image),
		)
		return nil
	}
	if current.target.Image == t.target.Image { // of which other objects are wanted
		t.signed = current.signed
		return nil
	}
	policy, err := signature.PolicyOf(current.payload)
	if policy == nil && err == nil {
		t.signed.unverified = fmt.Sprintf("release %s has no ConfigMap with the annotation %s", current.release.Version,
			signature.ConfigAnnotation)
		return nil
	}
	if err == nil {
		err = t.applier.verify(ctx, policy, t.target.Image)
	}
	switch {
	case err == nil:
		t.signed.isVerified = true
	case t.target.Force && ctx.Err() == nil:
		t.signed.risk = t.forcedRisk(err)
	default:
		return err
	}
	return nil
}

// forcedRisk returns the risk of an image that was not verified, and is applied all the same.
func (t *acceptance) forcedRisk(err error) string {
	return fmt.Sprintf("Target release version=%q image=%q cannot be verified, but continuing anyway because the "+
		"update was forced: %v", t.target.Version, t.target.Image, err)
}

// verify looks for the signatures of an image, and keeps those that are good in the namespace of the record.
func (a *applier) verify(ctx context.Context, policy *signature.Policy, image string) error {
	_, digest, _ := strings.Cut(image, "@")
	found, err := policy.Verify(ctx, digest, signature.Stores{
		ConfigMaps: a.cluster.Client.CoreV1(), Namespaces: []string{a.options.Namespace, signature.ManagedNamespace},
	})
	if err != nil {
		return err
	}
	// they are looked for again the next time
	if err := signature.Persist(ctx, a.cluster.Client.CoreV1(), a.options.Namespace, digest, found); err != nil {
		ctrl.LoggerFrom(ctx).Info("signatures not kept", "image", image, "reason", err.Error())
	}
	return nil
}
