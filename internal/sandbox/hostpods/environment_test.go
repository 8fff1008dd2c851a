package hostpods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestExpandReplacesVariables(t *testing.T) {
	known := variables{"A": "1", "EMPTY": "", "REF": "$(A)"}
	for text, want := range map[string]string{
		"":                 "",
		"plain":            "plain",
		"$(A)":             "1",
		"x$(A)y$(A)z":      "x1y1z",
		"-$(EMPTY)-":       "--",
		"$(REF)":           "$(A)",
		"$(NONE)":          "$(NONE)",
		"$$(A)":            "$(A)",
		"$$$(A)":           "$1",
		"$A ${A} $":        "$A ${A} $",
		"$(A":              "$(A",
		"cost: $5, $(A)":   "cost: $5, 1",
		"$(NONE)$(A)$$":    "$(NONE)1$",
		"--flag=$(A)/$(A)": "--flag=1/1",
	} {
		if got := expand(text, known); got != want {
			t.Errorf("%q is replaced by %q, want %q", text, got, want)
		}
	}
}

func TestRewriteReplacesMountPaths(t *testing.T) {
	c := &container{
		pod: &hostPod{folder: "/host", first: &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "data"}, {Name: "keys"},
		}}}},
		spec: corev1.Container{VolumeMounts: []corev1.VolumeMount{
			{Name: "data", MountPath: "/data/"}, {Name: "keys", MountPath: "/data/keys", SubPath: "tls"},
		}},
	}
	for text, want := range map[string]string{
		"/data":           "/host/volumes/data",
		"/data/a":         "/host/volumes/data/a",
		"/data/keys/a":    "/host/volumes/keys/tls/a",
		"/database":       "/database",
		"see /data":       "see /data",
		"--dir=/data/a=b": "--dir=/host/volumes/data/a=b",
		"/data/a=/data":   "/host/volumes/data/a=/data",
		"--dir":           "--dir",
		"":                "",
	} {
		if got := c.rewrite(text); got != want {
			t.Errorf("%q is replaced by %q, want %q", text, got, want)
		}
	}
}
