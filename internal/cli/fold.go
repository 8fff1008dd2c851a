package cli

// mostAlike is how many things with one cause are printed one by one.
const mostAlike = 3

// A fold is one thing to print, and others with the same cause, which it stands for.
type fold[T any] struct {
	first  T
	others []T
}

// folded returns what is to be printed of some things: where more than mostAlike have one cause, the
// first of them stands for all.
func folded[T any](all []T, cause func(T) string) []fold[T] {
	count := map[string]int{}
	for _, one := range all {
		count[cause(one)]++
	}
	var folds []fold[T]
	places := map[string]int{}
	for _, one := range all {
		key := cause(one)
		if at, isKnown := places[key]; isKnown && count[key] > mostAlike {
			folds[at].others = append(folds[at].others, one)
			continue
		}
		places[key] = len(folds)
		folds = append(folds, fold[T]{first: one})
	}
	return folds
}
