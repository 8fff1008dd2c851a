package draw_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/runlevel/runlevel/pkg/graph/draw"
)

// TestColorsCanBeToldApart computes the contrasts that WCAG 2.2 AA requires.
func TestColorsCanBeToldApart(t *testing.T) {
	backgrounds := []string{"paper", "raised", "good-fill", "waiting-fill", "bad-fill", "accent-fill"}
	texts := []string{"ink", "soft", "accent", "good", "waiting", "bad"}
	check := func(front, back string, want float64) {
		t.Helper()
		a, b := color(t, front), color(t, back)
		if ratio := contrast(t, a.Light, b.Light); ratio < want {
			t.Errorf("%s on %s has a contrast of %.2f in light, want %.1f", front, back, ratio, want)
		}
		if ratio := contrast(t, a.Dark, b.Dark); ratio < want {
			t.Errorf("%s on %s has a contrast of %.2f in dark, want %.1f", front, back, ratio, want)
		}
	}
	for _, back := range backgrounds {
		for _, text := range texts {
			check(text, back, 4.5)
		}
	}
	for _, back := range []string{"paper", "raised"} {
		check("border", back, 3)
		check("bar", back, 3)
	}
	check("paper", "bar", 4.5) // the name of a Job
	check("paper", "bad", 4.5) // the name of a deleted Job
}

func color(t *testing.T, name string) draw.Color {
	t.Helper()
	for _, c := range draw.Palette {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no color %s", name)
	return draw.Color{}
}

// contrast returns the contrast of two colours, between 1 and 21.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	value, err := strconv.ParseUint(hex[1:], 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	linear := func(shift int) float64 {
		part := float64(value>>shift&0xff) / 255
		if part <= 0.04045 {
			return part / 12.92
		}
		return math.Pow((part+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(16) + 0.7152*linear(8) + 0.0722*linear(0)
}
