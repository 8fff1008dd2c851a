package runtimehook

import (
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// SetClock makes the answers that are remembered grow old by a clock of the test.
func (h *InPlaceHooks) SetClock(c clock.Clock) { h.known = cache.NewExpiringWithClock(c) }

// AnswerLifetime limits how long an answer is cached.
const AnswerLifetime = answerLifetime
