/** Has who uses the keyboard scroll what is wider than its place; for {@attach}. */
export function scrolls(node: HTMLElement) {
  const watch = new ResizeObserver(() => {
    if (node.scrollWidth > node.clientWidth) node.tabIndex = 0;
    else node.removeAttribute('tabindex');
  });
  watch.observe(node);
  for (const child of node.children) watch.observe(child);
  return () => watch.disconnect();
}
