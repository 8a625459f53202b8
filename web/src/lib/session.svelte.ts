// Who looks at this page, and of what: one host by its agent, or a fleet by its controller.

export interface Session {
  mode: 'host' | 'fleet';
  csrf: string; // goes with each request that changes something
  name: string; // of the host or the fleet
  who: string;
  may: 'nothing' | 'read' | 'change'; // of a fleet: "change" is an operator or an admin
  role?: 'viewer' | 'operator' | 'admin'; // of a fleet, the highest
  namespace?: string; // of one host, "-" unless --netns was given
  saves?: boolean; // the policy's file can be written where the page is served
  version: string;
}

class State {
  current = $state<Session>();
  error = $state('');

  async load() {
    try {
      const answer = await fetch('/session');
      if (answer.ok) this.current = (await answer.json()) as Session;
      this.error = answer.ok
        ? ''
        : ((await answer.json().catch(() => ({}))) as { error?: string }).error || answer.statusText;
    } catch {
      this.error = 'The server does not answer.';
    }
  }
}

export const session = new State();
