// The address of the page: its path says which page, its query all that is chosen there, so
// that a link shows a colleague the same.

class Route {
  path = $state(location.pathname);
  query = $state.raw(new URLSearchParams(location.search));

  constructor() {
    addEventListener('popstate', () => this.#read());
    // Links within the page do not load it again.
    document.addEventListener('click', (event) => {
      const link = (event.target as Element | null)?.closest?.('a');
      if (!link || event.defaultPrevented || event.button !== 0) return;
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      if (link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
      if (link.pathname === '/login') return; // the server's own
      if (link.pathname === location.pathname && link.search === location.search && link.hash) return;
      event.preventDefault();
      this.go(link.pathname + link.search);
    });
  }

  #read() {
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
  }

  /** Goes to another address; a new entry of the history. */
  go(to: string) {
    history.pushState(null, '', to);
    this.#read();
    scrollTo(0, 0);
    document.querySelector<HTMLElement>('main')?.focus({ preventScroll: true });
  }

  /** What the query has for a name, "" where it has nothing. */
  get(name: string): string {
    return this.query.get(name) ?? '';
  }

  /** Changes the query; what is "" goes. It replaces the entry of the history. */
  set(values: Record<string, string>) {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(values)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const text = query.toString();
    history.replaceState(null, '', location.pathname + (text ? `?${text}` : ''));
    this.query = query;
  }
}

export const route = new Route();

/** The address of a page with a query; what is "" or undefined is left out. */
export function to(path: string, query: Record<string, string | number | undefined> = {}): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== '') q.set(name, String(value));
  const text = q.toString();
  return path + (text ? `?${text}` : '');
}
