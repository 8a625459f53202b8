package netns

// WatchIn is watch.
var WatchIn = watch
